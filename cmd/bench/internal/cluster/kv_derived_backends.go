// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// derivedBackends are the backends of derived Services, as each event has them: in EndpointSlices, and in the keys of Services. A backend
// is lost at the event after which it is in none of them.
type derivedBackends struct {
	inCopies, inKeys *sightings[string] // addresses

	mu       sync.Mutex
	inSlices map[string]map[string][]string // ready addresses of each EndpointSlice, by Service
	keys     map[string][]string            // addresses of each key
	services map[string]string              // cluster IPs
	has      map[string]bool                // addresses that derived Services are to have
	lost     map[string]bool
}

func newDerivedBackends() *derivedBackends {
	return &derivedBackends{
		inCopies: newSightings[string](), inKeys: newSightings[string](),
		inSlices: map[string]map[string][]string{}, keys: map[string][]string{}, services: map[string]string{}, has: map[string]bool{}, lost: map[string]bool{},
	}
}

// expect has all backends that there are stay from now on. Each of n Services is to have two, in EndpointSlices and in its key.
func (d *derivedBackends) expect(n int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.lost)
	inKeys := map[string]bool{}
	for _, addresses := range d.keys {
		for _, address := range addresses {
			inKeys[address] = true
		}
	}
	for _, of := range d.inSlices {
		for _, addresses := range of {
			for _, address := range addresses {
				d.has[address] = true
			}
		}
	}
	if len(d.services) != n || len(d.inSlices) != n || len(d.has) != 2*n || !maps.Equal(d.has, inKeys) {
		return fmt.Errorf("%d derived Services have %d backends in the EndpointSlices of %d, and %d in keys: want %d with two each", len(d.services), len(d.has), len(d.inSlices), len(inKeys), n)
	}
	return nil
}

// release lets a backend go.
func (d *derivedBackends) release(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.has, address)
}

// forget forgets which ones were lost.
func (d *derivedBackends) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.lost)
}

// missed are the backends that were lost, and where.
func (d *derivedBackends) missed() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.lost))
}

// compare notes which of those that were there are gone.
func (d *derivedBackends) compare(where string, before, after []string) {
	for _, address := range before {
		if d.has[address] && !slices.Contains(after, address) {
			d.lost[address+" in "+where] = true
		}
	}
}

// isDerived reports whether a Service is a derived one, by its name.
func isDerived(service string) bool { return strings.HasPrefix(service, "derived-") }

func (d *derivedBackends) handleSlice(event watch.EventType, slice *unstructured.Unstructured) {
	now, service := time.Now(), slice.GetLabels()[discoveryv1.LabelServiceName]
	if !isDerived(service) {
		return
	}
	addresses := readyAddresses(slice)
	d.mu.Lock()
	of := d.inSlices[service]
	if of == nil {
		of = map[string][]string{}
		d.inSlices[service] = of
	}
	before := slices.Concat(slices.Collect(maps.Values(of))...)
	if of[slice.GetName()] = addresses; event == watch.Deleted {
		delete(of, slice.GetName())
	}
	d.compare("EndpointSlices", before, slices.Concat(slices.Collect(maps.Values(of))...))
	d.mu.Unlock()
	if event != watch.Deleted {
		d.inCopies.record(now, addresses...)
	}
}

// readyAddresses are the addresses of endpoints to which traffic goes.
func readyAddresses(slice *unstructured.Unstructured) (all []string) {
	list, _, _ := unstructured.NestedSlice(slice.Object, "endpoints")
	for _, endpoint := range list {
		of, _ := endpoint.(map[string]any)
		if ready, says, _ := unstructured.NestedBool(of, "conditions", "ready"); says && !ready {
			continue
		}
		addresses, _, _ := unstructured.NestedStringSlice(of, "addresses")
		all = append(all, addresses...)
	}
	return all
}

// handleService counts the backends of a derived Service as lost if it goes, gets another address, or selects pods.
func (d *derivedBackends) handleService(event watch.EventType, service *unstructured.Unstructured) {
	name := service.GetName()
	if !isDerived(name) {
		return
	}
	address, _, _ := unstructured.NestedString(service.Object, "spec", "clusterIP")
	_, selects, _ := unstructured.NestedMap(service.Object, "spec", "selector")
	d.mu.Lock()
	defer d.mu.Unlock()
	before, known := d.services[name]
	if event == watch.Deleted || known && before != address || selects {
		d.compare("Service "+name, slices.Concat(slices.Collect(maps.Values(d.inSlices[name]))...), nil)
	}
	if d.services[name] = address; event == watch.Deleted {
		delete(d.services, name)
	}
}

// inText are addresses of backends in the value of the key of a Service.
var inText = regexp.MustCompile(`"10\.[0-9]+\.[0-9]+\.[0-9]+"`)

// handleKey sees keys of Services. Those of EndpointSlices are compressed: that none goes is all that shows of them.
func (d *derivedBackends) handleKey(deleted bool, key, value string) {
	now := time.Now()
	if !strings.HasPrefix(key, derivedServiceKey("")) {
		if deleted && strings.Contains(key, "/derived-") {
			d.mu.Lock()
			d.lost["the key "+key] = true
			d.mu.Unlock()
		}
		return
	}
	var addresses []string
	for _, text := range inText.FindAllString(value, -1) {
		addresses = append(addresses, strings.Trim(text, `"`))
	}
	d.mu.Lock()
	d.compare("etcd", d.keys[key], addresses)
	if d.keys[key] = addresses; deleted {
		delete(d.keys, key)
	}
	d.mu.Unlock()
	if !deleted {
		d.inKeys.record(now, addresses...)
	}
}
