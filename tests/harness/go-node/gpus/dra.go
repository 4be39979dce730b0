package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	api "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// driver prepares claims on the GPUs of one pool, which is called like the node.
type driver struct {
	machine *machine
	pool    string
	fatal   context.CancelCauseFunc

	mutex    sync.Mutex
	prepared map[string]types.UID // device -> the claim that holds it; an admin's claim holds nothing
}

// drive publishes the GPUs and prepares claims until the context ends.
func drive(ctx context.Context, m *machine, node, kubeconfig, kubelet string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	data, registry := filepath.Join(kubelet, "plugins", m.Driver), filepath.Join(kubelet, "plugins_registry")
	for _, folder := range []string{data, registry} { // the library makes none
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	own := &driver{machine: m, pool: node, fatal: cancel, prepared: map[string]types.UID{}}
	helper, err := kubeletplugin.Start(ctx, own,
		kubeletplugin.DriverName(m.Driver),
		kubeletplugin.NodeName(node),
		kubeletplugin.KubeClient(client),
		kubeletplugin.PluginDataDirectoryPath(data),
		kubeletplugin.RegistrarDirectoryPath(registry),
		kubeletplugin.HealthService(false),
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: own.devices()}}}
	resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}
	if err := helper.PublishResources(ctx, resources); err != nil {
		return err
	}
	fmt.Printf("published %d of %s\n", len(m.GPUs), m.Driver)
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

func (d *driver) devices() []api.Device {
	devices := make([]api.Device, 0, len(d.machine.GPUs))
	for _, each := range d.machine.GPUs {
		attributes := attributes(each)
		if each.Product != "" {
			attributes["productName"] = text(each.Product)
		}
		if each.PCIBusID != "" {
			attributes["resource.kubernetes.io/pciBusID"] = text(each.PCIBusID)
		}
		device := api.Device{Name: name(each), Attributes: attributes}
		if each.MemoryMiB > 0 {
			memory := *resource.NewQuantity(each.MemoryMiB<<20, resource.BinarySI)
			device.Capacity = map[api.QualifiedName]api.DeviceCapacity{"memory": {Value: memory}}
		}
		devices = append(devices, device)
	}
	return devices
}

func attributes(each gpu) map[api.QualifiedName]api.DeviceAttribute {
	if each.Attributes == nil {
		return map[api.QualifiedName]api.DeviceAttribute{"type": text("gpu"), "uuid": text(each.UUID)}
	}
	found := map[api.QualifiedName]api.DeviceAttribute{}
	for name, value := range each.Attributes {
		switch value := value.(type) {
		case bool:
			found[api.QualifiedName(name)] = api.DeviceAttribute{BoolValue: &value}
		case string:
			found[api.QualifiedName(name)] = text(value)
		}
	}
	return found
}

func name(each gpu) string {
	if each.Name != "" {
		return each.Name
	}
	return fmt.Sprintf("gpu-%d", each.Minor)
}

func text(value string) api.DeviceAttribute { return api.DeviceAttribute{StringValue: &value} }

// PrepareResourceClaims says by which CDI devices the runtime gives the claimed GPUs.
func (d *driver) PrepareResourceClaims(
	_ context.Context, claims []*api.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	results := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for _, claim := range claims {
		devices, err := d.prepare(claim)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

func (d *driver) prepare(claim *api.ResourceClaim) ([]kubeletplugin.Device, error) {
	uuids := map[string]string{}
	for _, each := range d.machine.GPUs {
		uuids[name(each)] = each.UUID
	}
	var devices []kubeletplugin.Device
	var held []string
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != d.machine.Driver || result.Pool != d.pool {
			continue
		}
		uuid, known := uuids[result.Device]
		if !known {
			return nil, fmt.Errorf("there is no device %s", result.Device)
		}
		if result.AdminAccess == nil || !*result.AdminAccess {
			if holder, taken := d.prepared[result.Device]; taken && holder != claim.UID {
				return nil, fmt.Errorf("device %s is prepared for claim %s", result.Device, holder)
			}
			held = append(held, result.Device)
		}
		devices = append(devices, kubeletplugin.Device{
			Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device,
			CDIDeviceIDs: []string{d.machine.device(uuid)},
		})
	}
	for _, device := range held {
		d.prepared[device] = claim.UID
	}
	return devices, nil
}

// UnprepareResourceClaims lets go of the GPUs; every claim has an answer.
func (d *driver) UnprepareResourceClaims(
	_ context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	results := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		results[claim.UID] = nil
		for device, holder := range d.prepared {
			if holder == claim.UID {
				delete(d.prepared, device)
			}
		}
	}
	return results, nil
}

// WatchHealthStatus is asked of nobody: the service is off, so that the kubelet knows nothing of a device's health.
func (d *driver) WatchHealthStatus(ctx context.Context, _ chan<- kubeletplugin.DeviceHealthReport) error {
	<-ctx.Done()
	return nil
}

// HandleError ends the driver where no retry will help.
func (d *driver) HandleError(_ context.Context, err error, message string) {
	fmt.Fprintln(os.Stderr, message+":", err)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.fatal(err)
	}
}
