// Command gpus hands the GPUs of a machine to containers, as NVIDIA's device plugin or as its DRA driver does.
//
//	gpus plugin MACHINE --cdi=FOLDER                  nvidia.com/gpu by the kubelet's device plugins
//	gpus dra MACHINE --cdi=FOLDER --node=NAME --kubeconfig=FILE
//
// MACHINE is a JSON file (machine.go): which GPUs there are, and what a container that gets one sees. They may be real
// ones, or pretended by any device node. Either way a container gets them by CDI, which containerd reads from FOLDER:
// nothing in the Pod has to ask for more. One of the two at a time on a node: both would hand out the same GPUs. Other
// kinds of device, as MIG devices and NICs, have a program and a file each.
// Ends on SIGTERM; what it has offered goes with the node.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const usage = "gpus plugin|dra MACHINE [options]"

func run(ctx context.Context, arguments []string) error {
	if len(arguments) < 2 {
		return fmt.Errorf("%s", usage)
	}
	how, file := arguments[0], arguments[1]
	options := flag.NewFlagSet(how, flag.ContinueOnError)
	cdi := options.String("cdi", "/etc/cdi", "folder in which the container runtime finds the devices")
	node := options.String("node", "", "name of this node (dra)")
	kubeconfig := options.String("kubeconfig", "", "how to log in: a kubelet's own will do (dra)")
	folder := options.String("folder", v1beta1.DevicePluginPath, "where the kubelet looks for device plugins (plugin)")
	preferred := options.String("preferred", "", "file of uuids, a line each: which to take first; read each time (plugin)")
	kubelet := options.String("kubelet", "/var/lib/kubelet", "root folder of the kubelet (dra)")
	if err := options.Parse(arguments[2:]); err != nil {
		return err
	}
	machine, err := readMachine(file)
	if err != nil {
		return err
	}
	if err := machine.writeCDI(*cdi); err != nil {
		return err
	}
	switch how {
	case "plugin":
		offer(ctx, machine, *folder, *preferred)
		return nil
	case "dra":
		return drive(ctx, machine, *node, *kubeconfig, *kubelet)
	}
	return fmt.Errorf("%s", usage)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gpus:", err)
		os.Exit(1)
	}
}
