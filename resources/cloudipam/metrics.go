// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/metrics"
)

// ipamMetrics have the names of the original.
type ipamMetrics struct {
	NodeCapacity *prometheus.GaugeVec
	NodeUsed     *prometheus.GaugeVec
	NodeNeeded   *prometheus.GaugeVec
	IPs          *prometheus.GaugeVec
	Nodes        *prometheus.GaugeVec
	Subnets      *prometheus.GaugeVec
	Interfaces   prometheus.Gauge
	Candidates   prometheus.Gauge
	EmptySlots   prometheus.Gauge
	Missing      prometheus.Gauge

	Allocations *prometheus.CounterVec
	Releases    *prometheus.CounterVec
	Creations   *prometheus.CounterVec
	Resyncs     prometheus.Counter

	AllocationDuration *prometheus.HistogramVec
	ReleaseDuration    *prometheus.HistogramVec
	ReadDuration       *prometheus.HistogramVec

	subnets, results firstNames
}

// seconds are the buckets of the original: 0.25, 0.5 and 1 to 60.
var seconds = slices.Concat([]float64{0.25, 0.5}, prometheus.LinearBuckets(1, 1, 60))

func newMetrics(f metrics.Factory) *ipamMetrics {
	f = f.In("ipam")
	return &ipamMetrics{
		NodeCapacity: f.GaugeVec("available_ips", "Addresses that each node can have", "target_node"),
		NodeUsed:     f.GaugeVec("used_ips", "Addresses that each node uses", "target_node"),
		NodeNeeded:   f.GaugeVec("needed_ips", "Addresses that each node lacks", "target_node"),
		IPs:          f.GaugeVec("ips", "Addresses of all nodes: used, available and not used, needed", "type"),
		Nodes:        f.GaugeVec("nodes", "Nodes: all (total), that lack addresses (in-deficit), that lack addresses and can have no more (at-capacity)", "category"),
		Subnets:      f.GaugeVec("available_ips_per_subnet", "Free addresses of each subnet", "subnet_id", "availability_zone"),
		Interfaces:   f.Gauge("available_interfaces", "Interfaces that can be attached or have room"),
		Candidates:   f.Gauge("interface_candidates", "Interfaces that are attached and have room"),
		EmptySlots:   f.Gauge("empty_interface_slots", "Interfaces that can be attached"),
		Missing:      f.Gauge("nodes_without_instance", "CiliumNodes whose instance the cloud does not have"),

		Allocations: f.CounterVec("ip_allocation_ops", "Addresses that were assigned", "subnet_id"),
		Releases:    f.CounterVec("ip_release_ops", "Addresses that were released", "subnet_id"),
		Creations:   f.CounterVec("interface_creation_ops", "Interfaces that were created", "subnet_id"),
		Resyncs:     f.Counter("resync_total", "Complete reads of the cloud after which all nodes were processed"),

		AllocationDuration: f.HistogramVec("allocation_duration_seconds", "How long it took to assign addresses", seconds, "type", "status", "subnet_id"),
		ReleaseDuration:    f.HistogramVec("release_duration_seconds", "How long it took to release addresses", seconds, "type", "status", "subnet_id"),
		ReadDuration:       f.HistogramVec("background_sync_duration_seconds", "How long reads of the cloud took", seconds, "status"),
	}
}

// Work of the queues, by the names that the originals have for their triggers.
type (
	deficitMetrics reconcile.DutyMetrics
	syncMetrics    reconcile.DutyMetrics
	resyncMetrics  reconcile.DutyMetrics
)

func newDeficitMetrics(f metrics.Factory) *deficitMetrics {
	return (*deficitMetrics)(reconcile.NewDutyMetrics(f.In("ipam"), "deficit_resolver", "Bringing the addresses of a node, and its CiliumNode, to what they should be"))
}

func newSyncMetrics(f metrics.Factory) *syncMetrics {
	return (*syncMetrics)(reconcile.NewDutyMetrics(f.In("ipam"), "k8s_sync", "Bringing a CiliumNode to what it should be"))
}

func newResyncMetrics(f metrics.Factory) *resyncMetrics {
	return (*resyncMetrics)(reconcile.NewDutyMetrics(f.In("ipam"), "resync", "Reading the cloud, or some of its instances"))
}

// Types of allocation_duration_seconds and release_duration_seconds.
const (
	typeCreate          = "createInterfaceAndAllocateIP"
	typeAssign          = "allocateIP"
	typeRelease         = "releaseIP"
	typeReleasePrefixes = "releaseIPPrefixes"
)

// statusOf is the label of a result.
func statusOf(err error) string {
	var of *NodeError
	switch {
	case err == nil:
		return "success"
	case errors.As(err, &of) && of.Status != "":
		return of.Status
	}
	return statusFailed
}

// statusFailed is the label of an attempt that failed for a reason without a name.
const statusFailed = "failed"

func (m *ipamMetrics) observe(h *prometheus.HistogramVec, what, subnet string, began time.Time, err error) {
	status, of := statusOf(err), m.subnetLabel(subnet)
	if !m.results.admit(status+" "+of, maxResults) {
		status, of = statusFailed, otherSubnets
	}
	h.WithLabelValues(what, status, of).Observe(time.Since(began).Seconds())
}

// subnetLabel is the label of a subnet in counters and histograms.
func (m *ipamMetrics) subnetLabel(subnet string) string {
	if m.subnets.admit(subnet, maxSubnets) {
		return subnet
	}
	return otherSubnets
}

// firstNames are the names that have series of their own, the first that are seen. It is safe for concurrent use.
type firstNames struct {
	mu    sync.Mutex
	known map[string]bool
}

// admit reports whether a name is one of the first, of which there are so many at most.
func (n *firstNames) admit(name string, most int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.known) < most && !n.known[name] {
		if n.known == nil {
			n.known = map[string]bool{}
		}
		n.known[name] = true
	}
	return n.known[name]
}

// numbers are those of a node that are counted.
type numbers struct {
	known      bool // its instance is
	capacity   int
	used       int
	available  int
	needed     int
	interfaces int
	slots      int
	atCapacity bool
}

// totals are the sums over all nodes.
type totals struct {
	numbers
	nodes, deficit, full, missing int
}

// add adds the numbers of a node, or with sign -1 subtracts them.
func (t *totals) add(n numbers, sign int) {
	count := func(to *int, is bool) {
		if is {
			*to += sign
		}
	}
	t.nodes += sign
	t.used += sign * n.used
	t.available += sign * (n.available - n.used)
	t.needed += sign * n.needed
	t.interfaces += sign * n.interfaces
	t.slots += sign * n.slots
	count(&t.deficit, n.needed > 0)
	count(&t.full, n.atCapacity)
	count(&t.missing, !n.known)
}

// set shows the numbers of a node. One whose instance the cloud does not have shows none: agents create CiliumNodes of any names.
func (m *ipamMetrics) set(node string, n numbers) {
	if !n.known {
		m.remove(node)
		return
	}
	m.NodeCapacity.WithLabelValues(node).Set(float64(n.capacity))
	m.NodeUsed.WithLabelValues(node).Set(float64(n.used))
	m.NodeNeeded.WithLabelValues(node).Set(float64(n.needed))
}

func (m *ipamMetrics) remove(node string) {
	for _, vec := range []*prometheus.GaugeVec{m.NodeCapacity, m.NodeUsed, m.NodeNeeded} {
		vec.DeleteLabelValues(node)
	}
}

// setTotals shows the sums.
func (m *ipamMetrics) setTotals(t totals) {
	m.IPs.WithLabelValues("used").Set(float64(t.used))
	m.IPs.WithLabelValues("available").Set(float64(t.available))
	m.IPs.WithLabelValues("needed").Set(float64(t.needed))
	m.Nodes.WithLabelValues("total").Set(float64(t.nodes))
	m.Nodes.WithLabelValues("in-deficit").Set(float64(t.deficit))
	m.Nodes.WithLabelValues("at-capacity").Set(float64(t.full))
	m.Interfaces.Set(float64(t.interfaces + t.slots))
	m.Candidates.Set(float64(t.interfaces))
	m.EmptySlots.Set(float64(t.slots))
	m.Missing.Set(float64(t.missing))
}

// setSubnets shows the free addresses of all subnets.
func (m *ipamMetrics) setSubnets(subnets map[string]Subnet) {
	m.Subnets.Reset()
	others := 0
	for i, id := range slices.Sorted(maps.Keys(subnets)) {
		if s := subnets[id]; i < maxSubnets {
			m.Subnets.WithLabelValues(id, s.Zone).Set(float64(s.Free))
		} else {
			others += s.Free
		}
	}
	if len(subnets) > maxSubnets {
		m.Subnets.WithLabelValues(otherSubnets, "").Set(float64(others))
	}
}

// maxSubnets is how many subnets have series of their own, of gauges the first by id: a cloud may list any number. All others are together in one.
const (
	maxSubnets   = 1000
	otherSubnets = "other"
	// maxResults is how many pairs of a status, which may be the code of an error of the cloud, and a subnet have histograms.
	maxResults = 1000
)
