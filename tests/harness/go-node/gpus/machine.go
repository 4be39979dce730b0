package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	cdi "tags.cncf.io/container-device-interface/specs-go"
)

// machine is what the file says: the GPUs, or other devices of one kind, and what every container with one gets.
type machine struct {
	Driver   string `json:"driver"`   // gpu.nvidia.com where it is left out
	Resource string `json:"resource"` // nvidia.com/gpu where it is left out; also the kind of the CDI devices
	GPUs     []gpu  `json:"gpus"`

	DeviceNodes []*cdi.DeviceNode `json:"deviceNodes"` // beside those of its GPUs
	Mounts      []folder          `json:"mounts"`
	Env         []string          `json:"env"` // NAME=value
}

type gpu struct {
	UUID        string            `json:"uuid"` // or what else the device is called by; CDI calls it so
	Minor       int               `json:"minor"`
	Product     string            `json:"product"`
	MemoryMiB   int64             `json:"memoryMiB"`
	PCIBusID    string            `json:"pciBusID"`    // as 0000:03:00.0
	DeviceNodes []*cdi.DeviceNode `json:"deviceNodes"` // path, and hostPath where that is another
	NUMANode    *int64            `json:"numaNode"`    // what a device plugin tells of it; nothing where it is left out
	Name        string            `json:"name"`        // in ResourceSlices; gpu-<minor> where it is left out
	Attributes  map[string]any    `json:"attributes"`  // there, texts and booleans, in place of those of a whole GPU
}

// folder of the machine, or a file, which the container sees read-only.
type folder struct {
	HostPath      string `json:"hostPath"`
	ContainerPath string `json:"containerPath"`
}

func readMachine(file string) (*machine, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	found := &machine{Driver: "gpu.nvidia.com", Resource: "nvidia.com/gpu"}
	if err := json.Unmarshal(text, found); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return found, nil
}

// device is how CDI calls a GPU.
func (m *machine) device(uuid string) string { return m.Resource + "=" + uuid }

// writeCDI tells the container runtime of the GPUs. The runtime looks for changed files whenever it needs a device.
func (m *machine) writeCDI(where string) error {
	devices := make([]cdi.Device, 0, len(m.GPUs))
	for _, each := range m.GPUs {
		edits := cdi.ContainerEdits{DeviceNodes: each.DeviceNodes}
		if len(each.DeviceNodes) == 0 { // a device without any edit is refused
			edits.Env = []string{fmt.Sprintf("GPU_%d=%s", each.Minor, each.UUID)}
		}
		devices = append(devices, cdi.Device{Name: each.UUID, ContainerEdits: edits})
	}
	mounts := make([]*cdi.Mount, 0, len(m.Mounts))
	for _, each := range m.Mounts {
		mounts = append(mounts, &cdi.Mount{
			HostPath: each.HostPath, ContainerPath: each.ContainerPath, Options: []string{"rbind", "ro", "nosuid", "nodev"},
		})
	}
	spec := cdi.Spec{
		Version: "0.6.0", Kind: m.Resource, Devices: devices,
		ContainerEdits: cdi.ContainerEdits{DeviceNodes: m.DeviceNodes, Mounts: mounts, Env: m.Env},
	}
	text, err := json.MarshalIndent(spec, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(where, 0o755); err != nil {
		return err
	}
	file := m.fileName()
	unfinished := filepath.Join(where, "."+file+".unfinished")
	if err := os.WriteFile(unfinished, text, 0o644); err != nil {
		return err
	}
	return os.Rename(unfinished, filepath.Join(where, file+".json"))
}

// fileName is one that no other kind of device of the node has.
func (m *machine) fileName() string { return strings.ReplaceAll(m.Resource, "/", "_") }
