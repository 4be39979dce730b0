package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	lookMS = 200 // between two looks whether the socket is still there
)

// plugin offers the GPUs as devices that are called by their uuids, as NVIDIA's does.
type plugin struct {
	v1beta1.UnimplementedDevicePluginServer
	machine   *machine
	preferred string
}

func (p *plugin) options() *v1beta1.DevicePluginOptions {
	return &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: p.preferred != ""}
}

func (p *plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return p.options(), nil
}

// ListAndWatch says once what there is: nothing changes here.
func (p *plugin) ListAndWatch(_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	answer := &v1beta1.ListAndWatchResponse{}
	for _, each := range p.machine.GPUs {
		device := &v1beta1.Device{ID: each.UUID, Health: v1beta1.Healthy}
		if each.NUMANode != nil {
			device.Topology = &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: *each.NUMANode}}}
		}
		answer.Devices = append(answer.Devices, device)
	}
	if err := stream.Send(answer); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// GetPreferredAllocation takes first what the file names first. Without the file the kubelet takes any.
func (p *plugin) GetPreferredAllocation(
	_ context.Context, asked *v1beta1.PreferredAllocationRequest,
) (*v1beta1.PreferredAllocationResponse, error) {
	text, err := os.ReadFile(p.preferred)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	answer := &v1beta1.PreferredAllocationResponse{}
	for _, container := range asked.ContainerRequests {
		chosen := slices.Clone(container.MustIncludeDeviceIDs)
		for _, uuid := range strings.Fields(string(text)) {
			wanted := slices.Contains(container.AvailableDeviceIDs, uuid) && !slices.Contains(chosen, uuid)
			if wanted && len(chosen) < int(container.AllocationSize) {
				chosen = append(chosen, uuid)
			}
		}
		answer.ContainerResponses = append(answer.ContainerResponses,
			&v1beta1.ContainerPreferredAllocationResponse{DeviceIDs: chosen})
	}
	return answer, nil
}

func (p *plugin) Allocate(_ context.Context, asked *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	answer := &v1beta1.AllocateResponse{}
	for _, container := range asked.ContainerRequests {
		given := &v1beta1.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")},
		}
		for _, uuid := range container.DevicesIds {
			given.CdiDevices = append(given.CdiDevices, &v1beta1.CDIDevice{Name: p.machine.device(uuid)})
		}
		answer.ContainerResponses = append(answer.ContainerResponses, given)
	}
	return answer, nil
}

// offer serves the plugin until the context ends. Where the kubelet has removed its socket, which it does when it
// starts, it makes it anew and registers again.
func offer(ctx context.Context, m *machine, folder, preferred string) {
	offered := &plugin{machine: m, preferred: preferred}
	for ctx.Err() == nil {
		if err := offered.serve(ctx, folder); err != nil {
			fmt.Fprintln(os.Stderr, "offering the devices anew:", err)
			pause(ctx)
		}
	}
}

func (p *plugin) serve(ctx context.Context, folder string) error {
	endpoint := p.machine.fileName() + ".sock"
	socket := filepath.Join(folder, endpoint)
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, p)
	go func() { _ = server.Serve(listener) }() // what fails here is seen below: the socket is gone, or nobody registers
	defer server.Stop()

	kubelet, err := grpc.NewClient("unix://"+filepath.Join(folder, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer kubelet.Close()
	request := &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: endpoint, ResourceName: p.machine.Resource, Options: p.options(),
	}
	if _, err := v1beta1.NewRegistrationClient(kubelet).Register(ctx, request); err != nil {
		return fmt.Errorf("the kubelet does not take the registration: %w", err)
	}
	fmt.Printf("registered %d of %s\n", len(p.machine.GPUs), p.machine.Resource)
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
