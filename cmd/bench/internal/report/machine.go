// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package report

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// Machine is the machine on which the figures were measured.
type Machine struct {
	CPU    string            `json:"cpu"`
	CPUs   int               `json:"cpus"`
	Memory string            `json:"memory,omitempty"`
	System string            `json:"system"`
	Go     string            `json:"go"`
	Load   [2]string         `json:"load"` // averages before and after
	Peers  map[string]string `json:"peers"`
}

// peers are the modules whose versions matter.
var peers = []string{"go.uber.org/dig", "go.uber.org/fx", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"}

// ThisMachine describes the machine. Done is to be called when all is measured.
func ThisMachine() Machine {
	m := Machine{
		CPU:    field("/proc/cpuinfo", "model name"),
		CPUs:   runtime.NumCPU(),
		Memory: field("/proc/meminfo", "MemTotal"),
		System: strings.TrimSpace(runtime.GOOS + "/" + runtime.GOARCH + " " + text("/proc/sys/kernel/osrelease")),
		Go:     runtime.Version(),
		Load:   [2]string{text("/proc/loadavg")},
		Peers:  map[string]string{},
	}
	info, _ := debug.ReadBuildInfo()
	if info != nil {
		for _, dep := range info.Deps {
			if slices.Contains(peers, dep.Path) {
				m.Peers[dep.Path] = dep.Version
			}
		}
	}
	return m
}

// Done notes the load at the end.
func (m *Machine) Done() { m.Load[1] = text("/proc/loadavg") }

// lines are the description for people.
func (m Machine) lines() []string {
	versions := make([]string, 0, len(m.Peers))
	for _, path := range peers {
		if v := m.Peers[path]; v != "" {
			versions = append(versions, path+" "+v)
		}
	}
	return []string{
		fmt.Sprintf("Machine: %s, %d CPUs, %s memory, %s, %s", m.CPU, m.CPUs, m.Memory, m.System, m.Go),
		fmt.Sprintf("Load averages: %s before, %s after", m.Load[0], m.Load[1]),
		"Peers: " + strings.Join(versions, ", "),
	}
}

// text is the first three words of a file, "" if there is none.
func text(file string) string {
	b, _ := os.ReadFile(file) // not everywhere is Linux
	words := strings.Fields(string(b))
	return strings.Join(words[:min(3, len(words))], " ")
}

// field is the value of the first line of a file that starts with name.
func field(file, name string) string {
	b, _ := os.ReadFile(file)
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
