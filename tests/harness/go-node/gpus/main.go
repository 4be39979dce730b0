// Command gpus is a device plugin that offers pretend GPUs: nvidia.com/gpu, one device for each uuid given.
//
// A container that gets some finds their uuids in NVIDIA_VISIBLE_DEVICES, as NVIDIA's own plugin tells them; there is
// no device node behind them. Ends on SIGTERM. Where the kubelet has removed the socket, which it does when it starts,
// it makes it anew and registers again.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	endpoint = "closeknit-gpus.sock"
	lookMS   = 200 // between two looks whether the socket is still there
)

type plugin struct {
	v1beta1.UnimplementedDevicePluginServer
	devices []*v1beta1.Device
}

func (p *plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

// ListAndWatch says once what there is: nothing changes here.
func (p *plugin) ListAndWatch(_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, asked *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	answer := &v1beta1.AllocateResponse{}
	for _, container := range asked.ContainerRequests {
		visible := strings.Join(container.DevicesIds, ",")
		answer.ContainerResponses = append(answer.ContainerResponses, &v1beta1.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": visible},
		})
	}
	return answer, nil
}

// serve offers the devices until the context ends or the kubelet has removed the socket.
func serve(ctx context.Context, resource, folder string, devices []*v1beta1.Device) error {
	socket := filepath.Join(folder, endpoint)
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, &plugin{devices: devices})
	go func() { _ = server.Serve(listener) }() // what fails here is seen below: the socket is gone, or nobody registers
	defer server.Stop()

	kubelet, err := grpc.NewClient("unix://"+filepath.Join(folder, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer kubelet.Close()
	request := &v1beta1.RegisterRequest{Version: v1beta1.Version, Endpoint: endpoint, ResourceName: resource}
	if _, err := v1beta1.NewRegistrationClient(kubelet).Register(ctx, request); err != nil {
		return fmt.Errorf("the kubelet does not take the registration: %w", err)
	}
	fmt.Printf("registered %d of %s\n", len(devices), resource)
	for ctx.Err() == nil {
		if _, err := os.Lstat(socket); err != nil {
			return err
		}
		pause(ctx)
	}
	return nil
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(lookMS * time.Millisecond):
	}
}

func main() {
	resource := flag.String("resource", "nvidia.com/gpu", "what the devices are called")
	folder := flag.String("folder", v1beta1.DevicePluginPath, "where the kubelet looks for device plugins")
	flag.Parse()
	devices := make([]*v1beta1.Device, 0, flag.NArg())
	for _, uuid := range flag.Args() {
		devices = append(devices, &v1beta1.Device{ID: uuid, Health: v1beta1.Healthy})
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	for ctx.Err() == nil {
		if err := serve(ctx, *resource, *folder, devices); err != nil {
			fmt.Fprintln(os.Stderr, "offering the devices anew:", err)
			pause(ctx)
		}
	}
}
