// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package load

import "fmt"

// Size is how much is loaded.
type Size struct {
	Nodes, Pods int
	// LabelSets is how many different ones the pods have; 0 stands for 9 of 80.
	LabelSets int
}

// Sizes are the named ones.
var Sizes = map[string]Size{
	"S": {Nodes: 1000, Pods: 10_000},
	"M": {Nodes: 2000, Pods: 16_000},
	"L": {Nodes: 5000, Pods: 100_000},
}

// ParseSize finds a named size; nodes, pods and labelSets, if not 0, take its place.
func ParseSize(name string, nodes, pods, labelSets int) (Size, error) {
	size, ok := Sizes[name]
	if !ok && name != "" {
		return size, fmt.Errorf("unknown size %q: use S, M or L, or say how many nodes and pods", name)
	}
	if nodes != 0 {
		size.Nodes = nodes
	}
	if pods != 0 {
		size.Pods = pods
	}
	if labelSets != 0 {
		size.LabelSets = labelSets
	}
	return size, size.validate()
}

const (
	// A node hands out the addresses of a /24, from firstHost on.
	firstHost   = 10
	podsPerNode = 240
	maxNodes    = 65_000 // of /24 networks of 10.0.0.0/8, and of addresses of 192.168.0.0/16
)

func (s Size) validate() error {
	switch {
	case s.Nodes < 1 || s.Nodes > maxNodes:
		return fmt.Errorf("%d nodes: at least 1 and at most %d are possible", s.Nodes, maxNodes)
	case s.Pods < 1:
		return fmt.Errorf("%d pods: at least 1 is needed", s.Pods)
	case s.Pods > s.Nodes*podsPerNode:
		return fmt.Errorf("%d pods on %d nodes: a node has room for %d", s.Pods, s.Nodes, podsPerNode)
	case s.LabelSets < 0 || s.LabelSets > s.Pods:
		return fmt.Errorf("%d label sets of %d pods: there may be one for each pod, and none stands for the default", s.LabelSets, s.Pods)
	case s.workloads() > maxIdentities:
		return fmt.Errorf("%d pods have %d label sets: there are identities for %d", s.Pods, s.workloads(), maxIdentities)
	}
	return nil
}

func (s Size) String() string { return fmt.Sprintf("%d nodes and %d pods", s.Nodes, s.Pods) }

// workloads is how many different label sets there are: 1,800 at size M.
func (s Size) workloads() int {
	if s.LabelSets > 0 {
		return s.LabelSets
	}
	return max(1, s.Pods*9/80)
}

// namespaces is 50 at size M.
func (s Size) namespaces() int { return max(3, s.Pods/320) }

// daemonSets are those with a pod on each node; they never are more than half of
// the pods.
func (s Size) daemonSets() int { return min(len(daemonSetNames), s.Pods/(2*s.Nodes), s.workloads()-1) }

var daemonSetNames = []string{"node-exporter", "log-agent"}
