// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

// export is a duty that writes a key for each object.
type export struct {
	name   string // of the scenario
	kind   string
	n      int
	args   []string
	prefix string // of the keys
	marker string // that is written after the keys, "" for none
	// prepare runs before objects are created.
	prepare func(ctx context.Context, p *plane) error
	create  func(ctx context.Context, p *plane, i int) error
	// change changes an object, so that the value of its key has the text that it returns.
	change func(ctx context.Context, p *plane, i, times int) (text string, err error)
	key    func(i int) string
}

const benchSpace = "bench"

// servicesExport is Services with so many backends each.
func (b KVBench) servicesExport(scenario string, n, backends int) export {
	name := func(i int) string { return fmt.Sprintf("service-%d", i) }
	address := func(i, times int) string { return fmt.Sprintf("10.%d.%d.%d", 100+times%100, i/250, i%250+1) }
	return export{
		// From 1.20 on each EndpointSlice has a key, too.
		name: scenario, kind: "services", n: n, args: []string{"--synchronize-k8s-services", "--cilium-release=1.19"},
		prefix: "cilium/state/services/v1/" + keysOf + "/", marker: "cilium/synced/" + keysOf + "/cilium/state/services/v1",
		prepare: func(ctx context.Context, p *plane) error {
			_, err := p.core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: benchSpace}}, metav1.CreateOptions{})
			return err
		},
		create: func(ctx context.Context, p *plane, i int) error {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
				Name: name(i), Labels: map[string]string{"app": name(i)}, Annotations: map[string]string{"service.cilium.io/global": "true"},
			}}
			service.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}
			service.Spec.Selector = map[string]string{"app": name(i)}
			if i >= maxClusterIPs {
				service.Spec.ClusterIP = corev1.ClusterIPNone
			}
			if _, err := p.core.CoreV1().Services(benchSpace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
				return err
			}
			number, port, protocol := int32(8080), "http", corev1.ProtocolTCP
			slice := &discoveryv1.EndpointSlice{
				ObjectMeta:  metav1.ObjectMeta{Name: name(i), Labels: map[string]string{discoveryv1.LabelServiceName: name(i)}},
				AddressType: discoveryv1.AddressTypeIPv4,
				Ports:       []discoveryv1.EndpointPort{{Name: &port, Port: &number, Protocol: &protocol}},
			}
			for at := range backends {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address(i*backends+at, 0)}})
			}
			_, err := p.core.DiscoveryV1().EndpointSlices(benchSpace).Create(ctx, slice, metav1.CreateOptions{})
			return err
		},
		change: func(ctx context.Context, p *plane, i, times int) (string, error) {
			patch := fmt.Sprintf(`[{"op":"replace","path":"/endpoints/0/addresses/0","value":%q}]`, address(i*backends, times))
			_, err := p.core.DiscoveryV1().EndpointSlices(benchSpace).Patch(ctx, name(i), types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
			return `"` + address(i*backends, times) + `"`, err
		},
		key: func(i int) string { return "cilium/state/services/v1/" + keysOf + "/" + benchSpace + "/" + name(i) },
	}
}

// maxClusterIPs is how many Services have a ClusterIP; the others are headless.
const maxClusterIPs = 10_000

func (b KVBench) nodesExport() export {
	name := func(i int) string { return fmt.Sprintf("node-%d", i) }
	return export{
		name: "nodes", kind: "nodes", n: b.Nodes, args: []string{"--synchronize-k8s-nodes", "--cilium-release=1.18"}, prefix: "cilium/state/nodes/v1/" + keysOf + "/",
		prepare: func(ctx context.Context, p *plane) error {
			o, err := b.run(ctx, p, "registrar", raised...) // registers the CRDs
			if err != nil {
				return err
			}
			defer o.end(syscall.SIGTERM)
			return p.defined(ctx, ciliumNodes)
		},
		create: func(ctx context.Context, p *plane, i int) error {
			node := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": map[string]any{
					"name": name(i), "labels": map[string]any{"kubernetes.io/hostname": name(i), "topology.kubernetes.io/zone": "z1"},
				},
				"spec": map[string]any{
					"addresses": []any{
						map[string]any{"type": "InternalIP", "ip": fmt.Sprintf("172.16.%d.%d", i/250, i%250+1)},
						map[string]any{"type": "CiliumInternalIP", "ip": fmt.Sprintf("10.%d.%d.1", i/250, i%250)},
					},
					"ipam":   map[string]any{"podCIDRs": []any{fmt.Sprintf("10.%d.%d.0/24", i/250, i%250)}},
					"health": map[string]any{"ipv4": fmt.Sprintf("10.%d.%d.9", i/250, i%250)}, "bootid": "boot-0-",
				},
			}}
			_, err := p.client.Resource(ciliumNodes).Create(ctx, node, metav1.CreateOptions{})
			return err
		},
		change: func(ctx context.Context, p *plane, i, times int) (string, error) {
			boot := fmt.Sprintf("boot-%d-", times)
			_, err := p.client.Resource(ciliumNodes).Patch(ctx, name(i), types.MergePatchType, []byte(fmt.Sprintf(`{"spec":{"bootid":%q}}`, boot)), metav1.PatchOptions{})
			return boot, err
		},
		key: func(i int) string { return "cilium/state/nodes/v1/" + keysOf + "/" + name(i) },
	}
}

// The names of what is measured of an export.
const (
	exportAll     = "start of the process → all keys"
	exportWriting = "first key → all keys"
	exportWrites  = "requests that write"
	exportReads   = "requests that read"
	exportBytes   = "received by etcd"
	exportHeap    = "live heap afterwards"
	exportChange  = "one object changes → its key has changed"
	exportPuts    = "keys written for that"
	exportRestart = "keys changed by a restart"
)

func (b KVBench) exportContest(e export) contest.Contest {
	return contest.Contest{
		Name: e.name, Title: fmt.Sprintf("%d %s written to etcd", e.n, e.kind),
		Note: "The objects exist before the operator starts, and etcd is empty. etcd's own client puts the same keys on the same etcd, by 32 workers; its change of one object " +
			"is the same request to the API server, and then one put. Times of changes begin before the request to the API server.",
		Contestants: kvContestants,
		Measures: []contest.Measure{
			{Name: exportAll, Unit: "s"}, {Name: exportWriting, Unit: "s"},
			{Name: exportWrites, Budget: contest.Budget{AtMost: 1.02*float64(e.n) + 20}}, {Name: exportReads},
			{Name: exportBytes, Unit: "MB"}, {Name: exportHeap, Unit: "MB"},
			{Name: exportChange, Unit: "ms", Budget: contest.Budget{AtMost: 20}},
			{Name: exportPuts, Budget: contest.Budget{AtMost: 1}},
			{Name: exportRestart, Budget: contest.Budget{Nothing: true}},
		},
	}
}

// fill creates the objects.
func (e export) fill(ctx context.Context, p *plane) error {
	if err := e.prepare(ctx, p); err != nil {
		return err
	}
	return paced(ctx, 0, e.n, func(ctx context.Context, i int) error { return e.create(ctx, p, i) })
}

// written reports whether all keys and the marker exist. The caller holds the tracker's lock.
func (e export) written(keys, markers *tracker) bool {
	if e.marker != "" {
		markers.mu.Lock()
		defer markers.mu.Unlock()
		if markers.values[e.marker] == "" {
			return false
		}
	}
	return len(keys.values) == e.n
}

func (b KVBench) export(ctx context.Context, e export, r record) error {
	return b.onStore(ctx, 1, func(ctx context.Context, p *plane, s *store) error {
		b.Progress(fmt.Sprintf("creating %d %s", e.n, e.kind))
		if err := e.fill(ctx, p); err != nil {
			return err
		}
		keys, err := s.track(ctx, e.prefix)
		if err != nil {
			return err
		}
		markers, err := s.track(ctx, "cilium/synced/")
		if err != nil {
			return err
		}
		before, err := s.traffic(ctx)
		if err != nil {
			return err
		}
		b.Progress("the operator starts")
		o, err := b.start(ctx, p, s, e.args...)
		if err != nil {
			return err
		}
		defer func() { o.end(syscall.SIGKILL) }()
		if err := keys.holds(ctx, func(t *tracker) bool { return e.written(t, markers) }); err != nil {
			return fmt.Errorf("%d of %d keys: %w", keys.count(), e.n, err)
		}
		after, err := s.traffic(ctx)
		if err != nil {
			return err
		}
		heap, _, _, err := o.memory(ctx)
		if err != nil {
			return err
		}
		did := after.since(before)
		first, last := keys.span()
		r(ours, contest.Figures{
			exportAll: last.Sub(o.began).Seconds(), exportWriting: last.Sub(first).Seconds(),
			exportWrites: did.writes, exportReads: did.reads, exportBytes: did.received / 1e6, exportHeap: heap,
		})
		if err := b.bareExport(ctx, s, keys, r); err != nil {
			return err
		}
		if err := b.changes(ctx, p, s, e, keys, r); err != nil {
			return err
		}
		b.Progress("the operator starts again")
		changed, next, err := b.changesAtRestart(ctx, p, s, o, keys, e.args...)
		if next != nil {
			o = next
		}
		r(ours, contest.Figures{exportRestart: changed})
		return err
	})
}

// bareExport puts the same keys with the bare client.
func (b KVBench) bareExport(ctx context.Context, s *store, keys *tracker, r record) error {
	values := keys.valuesOf(nil)
	before, err := s.traffic(ctx)
	if err != nil {
		return err
	}
	took, err := s.put(ctx, values)
	if err != nil {
		return err
	}
	after, err := s.traffic(ctx)
	did := after.since(before)
	r(bare, contest.Figures{exportWriting: took.Seconds(), exportWrites: did.writes, exportReads: did.reads, exportBytes: did.received / 1e6})
	return err
}

// changes changes one object after the other.
func (b KVBench) changes(ctx context.Context, p *plane, s *store, e export, keys *tracker, r record) error {
	b.Progress("objects change, one after the other")
	for times := 1; times <= b.Rounds; times++ {
		i := times * 7 % e.n
		keys.reset()
		began := time.Now()
		text, err := e.change(ctx, p, i, times)
		if err != nil {
			return err
		}
		if err := keys.holds(ctx, func(t *tracker) bool { return strings.Contains(t.values[e.key(i)], text) }); err != nil {
			return err
		}
		_, last := keys.span()
		took := last.Sub(began)
		if err := sleep(ctx, 300*time.Millisecond); err != nil { // whatever else is written
			return err
		}
		r(ours, contest.Figures{exportChange: 1000 * took.Seconds(), exportPuts: float64(keys.count())})
	}
	for times := b.Rounds + 1; times <= 2*b.Rounds; times++ {
		began := time.Now()
		text, err := e.change(ctx, p, times*7%e.n, times)
		if err != nil {
			return err
		}
		if _, err := s.client.Put(ctx, "bench/one", text+strings.Repeat("x", 500)); err != nil {
			return err
		}
		r(bare, contest.Figures{exportChange: 1000 * time.Since(began).Seconds()})
	}
	return nil
}
