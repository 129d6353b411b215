// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// labelSet writes the labels of an identity as one string.
func labelSet(security map[string]string) string {
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(security)) {
		text.WriteString(key + "=" + security[key] + ";")
	}
	return text.String()
}

// securityLabels are those that a pod's identity is to have, as
// docs/wire/identity.md tells, for the labels and the few ports that the pods
// here have. The operator has code of its own for it.
func securityLabels(namespace string, ofNamespace, ofPod map[string]string, containers []corev1.Container) map[string]string {
	security := map[string]string{
		"k8s:io.kubernetes.pod.namespace":         namespace,
		"k8s:io.cilium.k8s.policy.cluster":        "default",
		"k8s:io.cilium.k8s.policy.serviceaccount": "default",
	}
	for key, value := range ofNamespace {
		security["k8s:io.cilium.k8s.namespace.labels."+key] = value
	}
	for key, value := range ofPod {
		if !slices.Contains(templates, key) {
			security["k8s:"+key] = value
		}
	}
	var ports []string
	for _, c := range containers {
		for _, p := range c.Ports {
			if p.Name != "" {
				ports = append(ports, fmt.Sprintf("%s.%s.%d", p.Name, p.Protocol, p.ContainerPort))
			}
		}
	}
	if len(ports) > 0 {
		slices.Sort(ports)
		security["gen:io.cilium.k8s.named-ports"] = strings.Join(ports, "_")
	}
	return security
}

// templates are labels that differ with a pod's template, and not its identity.
var templates = []string{"pod-template-hash", "pod-template-generation", "controller-revision-hash"}

// identities are the CiliumIdentities, as a watch tells of them.
type identities struct {
	made *sightings[string] // by label set

	mu     sync.Mutex
	sets   map[string]string   // by number
	copies map[string][]string // numbers, by label set
}

func (p *plane) watchIdentities(ctx context.Context) (*identities, error) {
	all := &identities{made: newSightings[string](), sets: map[string]string{}, copies: map[string][]string{}}
	return all, p.followKind(ctx, ciliumIdentities, all.handleEvent)
}

func (all *identities) handleEvent(event watch.EventType, identity *unstructured.Unstructured) {
	at, number := time.Now(), identity.GetName()
	security, _, _ := unstructured.NestedStringMap(identity.Object, "security-labels")
	set := labelSet(security)
	all.record(event, number, set)
	if event != watch.Deleted {
		all.made.record(at, set)
	}
}

func (all *identities) record(event watch.EventType, number, set string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	before := all.sets[number]
	all.copies[before] = slices.DeleteFunc(all.copies[before], func(n string) bool { return n == number })
	delete(all.sets, number)
	if event != watch.Deleted {
		all.sets[number] = set
		all.copies[set] = append(all.copies[set], number)
	}
}

// number is that of a label set's identity, "" if it has none.
func (all *identities) number(set string) string {
	all.mu.Lock()
	defer all.mu.Unlock()
	if numbers := all.copies[set]; len(numbers) > 0 {
		return numbers[0]
	}
	return ""
}

// duplicates is how many identities there are for these label sets beyond one
// for each.
func (all *identities) duplicates(sets []string) int {
	all.mu.Lock()
	defer all.mu.Unlock()
	n := 0
	for _, set := range sets {
		n += max(0, len(all.copies[set])-1)
	}
	return n
}
