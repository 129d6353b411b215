// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

var (
	serviceImports = schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1beta1", Resource: "serviceimports"}
	serviceExports = serviceImports.GroupVersion().WithResource("serviceexports")
)

// The names of what is measured of derived Services.
const (
	derivedAll       = "from none: start of the process → all derived Services, copies and keys"
	derivedLeads     = "start of the process → it leads"
	derivedLost      = "backends lost at the switch, in EndpointSlices or in etcd"
	derivedWrites    = "requests that write to the API server"
	derivedKeys      = "keys changed in etcd"
	derivedCopy      = "an EndpointSlice changes → its copy has changed"
	derivedKey       = "an EndpointSlice changes → the key has changed"
	derivedMeanwhile = "start of the process → what has changed before it is in all copies"
	derivedLostThen  = "backends lost then that did not change"
)

func (b KVBench) derivedContest() contest.Contest {
	return contest.Contest{
		Name: "derived", Title: fmt.Sprintf("%d derived Services that an original of 1.20 has left", b.Derived),
		Note: "Each of the ServiceExports is of a Service with two backends. An operator makes ServiceImports, derived Services, copies of EndpointSlices and keys, " +
			"and ends; the bench then writes them as an original of 1.20 leaves them. Another operator starts, and is watched: each state of the EndpointSlices and " +
			"of the keys is to have all backends. Then every tenth Service loses a backend and gets another one while no operator runs.",
		Contestants: []contest.Contestant{{Name: ours, Judged: true}},
		Measures: []contest.Measure{
			{Name: derivedAll, Unit: "s"}, {Name: derivedLeads, Unit: "s"},
			{Name: derivedLost, Budget: contest.Budget{Nothing: true}},
			{Name: derivedWrites, Budget: contest.Budget{Nothing: true}},
			{Name: derivedKeys, Budget: contest.Budget{Nothing: true}},
			{Name: derivedCopy, Unit: "ms"}, {Name: derivedKey, Unit: "ms"},
			{Name: derivedMeanwhile, Unit: "s"},
			{Name: derivedLostThen, Budget: contest.Budget{Nothing: true}},
		},
	}
}

// succession is a cluster whose derived Services one operator leaves to another.
type succession struct {
	KVBench
	plane    *plane
	store    *store
	keys     *tracker
	backends *derivedBackends
	derived  []string // names of derived Services
	record   func(contest.Figures)
}

func (b KVBench) derived(ctx context.Context, r record) error {
	return b.onStore(ctx, 1, func(ctx context.Context, p *plane, s *store) error {
		m := &succession{KVBench: b, plane: p, store: s, backends: newDerivedBackends(), derived: make([]string, b.Derived), record: func(f contest.Figures) { r(ours, f) }}
		return m.measure(ctx)
	})
}

func exportedName(i int) string { return fmt.Sprint("service-", i) }

// exportedAddress is a backend of an exported Service. Each is of one Service alone.
func exportedAddress(i, k, version int) string {
	return fmt.Sprintf("10.%d.%d.%d", 20+2*version+k, i/250, i%250+1)
}

// in is where objects of a kind are.
func (m *succession) in(kind schema.GroupVersionResource) dynamic.ResourceInterface {
	return m.plane.client.Resource(kind).Namespace(benchSpace)
}

// begin starts an operator.
func (m *succession) begin(ctx context.Context) (*operator, error) {
	return m.start(ctx, m.plane, m.store, "--synchronize-k8s-services", "--clustermesh-enable-mcs-api", "--cilium-release=1.20")
}

func (m *succession) measure(ctx context.Context) error {
	if err := m.fill(ctx); err != nil {
		return err
	}
	o, err := m.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { o.end(syscall.SIGKILL) }()
	if err := m.made(ctx, o); err != nil {
		return err
	}
	o.end(syscall.SIGTERM)
	m.Progress("what is there gets the form that an original leaves")
	if err := m.leave(ctx); err != nil {
		return err
	}
	next, err := m.succeed(ctx)
	if next != nil {
		o = next
	}
	if err != nil {
		return err
	}
	if err := m.change(ctx); err != nil {
		return err
	}
	o.end(syscall.SIGTERM)
	if next, err = m.meanwhile(ctx); next != nil {
		o = next
	}
	return err
}

// fill makes Services with EndpointSlices, as Kubernetes makes these, and exports them.
func (m *succession) fill(ctx context.Context) error {
	registrar, err := m.run(ctx, m.plane, "registrar", append([]string{"--clustermesh-enable-mcs-api"}, raised...)...)
	if err != nil {
		return err
	}
	defer registrar.end(syscall.SIGTERM)
	for _, kind := range []schema.GroupVersionResource{serviceExports, serviceImports} {
		if err := m.plane.defined(ctx, kind); err != nil {
			return err
		}
	}
	registrar.end(syscall.SIGTERM)
	m.Progress(fmt.Sprintf("creating %d Services that are exported", m.Derived))
	if _, err := m.plane.core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: benchSpace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := paced(ctx, 0, m.Derived, m.create); err != nil {
		return err
	}
	if m.keys, err = m.store.track(ctx, "cilium/state/"); err != nil {
		return err
	}
	m.keys.mu.Lock()
	m.keys.onEvent = m.backends.handleKey
	m.keys.mu.Unlock()
	if err := m.plane.followKind(ctx, meshSlices, m.backends.handleSlice); err != nil {
		return err
	}
	return m.plane.followKind(ctx, coreServices, m.backends.handleService)
}

func (m *succession) create(ctx context.Context, i int) error {
	name, number, port, protocol, ready := exportedName(i), int32(8080), "http", corev1.ProtocolTCP, true
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}
	service.Spec.Ports = []corev1.ServicePort{{Name: port, Protocol: protocol, Port: 80}}
	service.Spec.Selector = map[string]string{"app": name}
	if _, err := m.plane.core.CoreV1().Services(benchSpace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return err
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-1", Labels: map[string]string{
			discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &port, Port: &number, Protocol: &protocol}},
	}
	for k := range 2 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{exportedAddress(i, k, 0)}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}
	if _, err := m.plane.core.DiscoveryV1().EndpointSlices(benchSpace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		return err
	}
	export := &unstructured.Unstructured{Object: map[string]any{"apiVersion": serviceExports.GroupVersion().String(), "kind": "ServiceExport"}}
	export.SetName(name)
	_, err := m.in(serviceExports).Create(ctx, export, metav1.CreateOptions{})
	return err
}

// made waits until an operator has made everything of exports.
func (m *succession) made(ctx context.Context, o *operator) error {
	m.Progress("the first operator starts")
	var all []string
	for i := range m.Derived {
		all = append(all, exportedAddress(i, 0, 0), exportedAddress(i, 1, 0))
	}
	inCopies, err := m.backends.inCopies.wait(ctx, all)
	if err != nil {
		return err
	}
	inKeys, err := m.backends.inKeys.wait(ctx, all)
	if err != nil {
		return err
	}
	m.record(contest.Figures{derivedAll: max(latest(inCopies).Sub(o.began), latest(inKeys).Sub(o.began)).Seconds()})
	return until(ctx, func() (bool, error) { // it writes statuses after that
		if err := sleep(ctx, time.Second); err != nil {
			return false, err
		}
		return m.areReady(ctx)
	})
}

// areReady reports whether all ServiceImports and ServiceExports have the condition Ready.
func (m *succession) areReady(ctx context.Context) (bool, error) {
	for _, kind := range []schema.GroupVersionResource{serviceImports, serviceExports} {
		list, err := m.in(kind).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		ready := 0
		for i := range list.Items {
			conditions, _, _ := unstructured.NestedSlice(list.Items[i].Object, "status", "conditions")
			if slices.ContainsFunc(conditions, func(c any) bool {
				of, _ := c.(map[string]any)
				return of["type"] == "Ready" && of["status"] == "True"
			}) {
				ready++
			}
		}
		if ready < m.Derived {
			return false, nil
		}
	}
	return true, nil
}

const (
	derivedMark   = "multicluster.kubernetes.io/derived-service"
	familiesMark  = "clustermesh.cilium.io/supported-ip-families"
	sourceCluster = "multicluster.kubernetes.io/source-cluster"
)

// leave writes everything as an original of 1.20 leaves it.
func (m *succession) leave(ctx context.Context) error {
	if err := paced(ctx, 0, m.Derived, m.leaveOne); err != nil {
		return err
	}
	return sleep(ctx, time.Second) // until the watches have seen that
}

// leaveOne is leave for what comes of one ServiceExport. Copies of EndpointSlices are the same.
func (m *succession) leaveOne(ctx context.Context, i int) error {
	imported, err := m.in(serviceImports).Get(ctx, exportedName(i), metav1.GetOptions{})
	if err != nil {
		return err
	}
	name := imported.GetAnnotations()[derivedMark]
	m.derived[i] = name
	imported.SetAnnotations(map[string]string{derivedMark: name, familiesMark: "IPv4"})
	if imported, err = m.in(serviceImports).Update(ctx, imported, metav1.UpdateOptions{}); err != nil {
		return err
	}
	imported.Object["status"] = map[string]any{
		"clusters":   []any{map[string]any{"cluster": keysOf}},
		"conditions": []any{condition("Ready", "True", "Ready", "ServiceImport is ready")}, "endpointSliceObjects": "Absent",
	}
	if _, err := m.in(serviceImports).UpdateStatus(ctx, imported, metav1.UpdateOptions{}); err != nil {
		return err
	}
	export, err := m.in(serviceExports).Get(ctx, exportedName(i), metav1.GetOptions{})
	if err != nil {
		return err
	}
	export.Object["status"] = map[string]any{"conditions": []any{
		condition("Valid", "True", "Valid", "ServiceExport is valid"), condition("Ready", "True", "Ready", "ServiceExport is ready"),
		condition("Conflict", "False", "NoConflicts", "ServiceExport has no conflicts"),
	}}
	if _, err := m.in(serviceExports).UpdateStatus(ctx, export, metav1.UpdateOptions{}); err != nil {
		return err
	}
	service, err := m.in(coreServices).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	yes := true
	service.SetLabels(map[string]string{"multicluster.kubernetes.io/service-name": exportedName(i)})
	service.SetAnnotations(map[string]string{derivedMark: name, familiesMark: "IPv4", "service.cilium.io/global": "true"})
	service.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: serviceImports.GroupVersion().String(), Kind: "ServiceImport", Name: exportedName(i), UID: imported.GetUID(), Controller: &yes, BlockOwnerDeletion: &yes,
	}})
	if _, err := m.in(coreServices).Update(ctx, service, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return m.leaveKey(ctx, derivedServiceKey(name))
}

func derivedServiceKey(name string) string {
	return "cilium/state/services/v1/" + keysOf + "/" + benchSpace + "/" + name
}

// leaveKey has the key of a derived Service be without the label that an original does not give to it.
func (m *succession) leaveKey(ctx context.Context, key string) error {
	value := m.keys.valuesOf(map[string]string{key: ""})[key]
	without := strings.NewReplacer(`,"`+sourceCluster+`":"`+keysOf+`"`, "").Replace(value)
	if value == "" || without == value {
		return fmt.Errorf("the key %s is not as expected: %q", key, value)
	}
	_, err := m.store.client.Put(ctx, key, without, clientv3.WithIgnoreLease())
	return err
}

func condition(kind, status, reason, message string) any {
	return map[string]any{"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}
}

// succeed starts an operator on what was left, and counts what it writes.
func (m *succession) succeed(ctx context.Context) (*operator, error) {
	if err := m.backends.expect(m.Derived); err != nil {
		return nil, err
	}
	m.keys.reset()
	m.Progress("another operator starts")
	o, err := m.begin(ctx)
	if err != nil {
		return nil, err
	}
	if err := o.waits(ctx, true); err != nil {
		return o, err
	}
	leads := time.Since(o.began)
	if err := sleep(ctx, watched); err != nil {
		return o, err
	}
	requests, err := m.plane.requests(o.user, o.began)
	if err != nil {
		return o, err
	}
	written := map[string]int{}
	for _, r := range requests {
		if r.mutates() {
			written[strings.TrimSuffix(r.Verb+" "+r.ObjectRef.Resource+"/"+r.ObjectRef.Subresource, "/")]++
		}
	}
	total := 0
	for _, what := range slices.Sorted(maps.Keys(written)) {
		m.Progress(fmt.Sprintf("it has written: %d times %s", written[what], what))
		total += written[what]
	}
	m.reportLost()
	m.record(contest.Figures{
		derivedLeads: leads.Seconds(), derivedLost: float64(len(m.backends.missed())), derivedWrites: float64(total), derivedKeys: float64(m.keys.count()),
	})
	return o, nil
}

// reportLost names some of the backends that were lost.
func (m *succession) reportLost() {
	all := m.backends.missed()
	for _, what := range all[:min(5, len(all))] {
		m.Progress("lost: " + what)
	}
}

// exchange puts another address in the place of a backend of a Service.
func (m *succession) exchange(ctx context.Context, i, k, version int) error {
	m.backends.release(exportedAddress(i, k, 0))
	patch := fmt.Sprintf(`[{"op":"replace","path":"/endpoints/%d/addresses/0","value":%q}]`, k, exportedAddress(i, k, version))
	_, err := m.plane.core.DiscoveryV1().EndpointSlices(benchSpace).Patch(ctx, exportedName(i)+"-1", types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// change changes one EndpointSlice after the other.
func (m *succession) change(ctx context.Context) error {
	m.Progress("EndpointSlices change, one after the other")
	for times := 1; times <= m.Rounds; times++ {
		i, version := times*7%m.Derived, 1+times%90 // each version of a Service has addresses of its own
		address := []string{exportedAddress(i, 0, version)}
		began := time.Now()
		if err := m.exchange(ctx, i, 0, version); err != nil {
			return err
		}
		inCopy, err := m.backends.inCopies.wait(ctx, address)
		if err != nil {
			return err
		}
		inKey, err := m.backends.inKeys.wait(ctx, address)
		if err != nil {
			return err
		}
		m.record(contest.Figures{
			derivedCopy: 1000 * latest(inCopy).Sub(began).Seconds(), derivedKey: 1000 * latest(inKey).Sub(began).Seconds(),
		})
	}
	return nil
}

// meanwhile has backends come and go before an operator starts.
func (m *succession) meanwhile(ctx context.Context) (*operator, error) {
	m.Progress("backends change while no operator runs")
	const version = 95 // which no other change has
	var others []string
	for i := 0; i < m.Derived; i += 10 {
		if err := m.exchange(ctx, i, 1, version); err != nil {
			return nil, err
		}
		others = append(others, exportedAddress(i, 1, version))
	}
	m.backends.forget()
	o, err := m.begin(ctx)
	if err != nil {
		return nil, err
	}
	inCopies, err := m.backends.inCopies.wait(ctx, others)
	if err != nil {
		return o, err
	}
	if err := sleep(ctx, watched); err != nil {
		return o, err
	}
	m.reportLost()
	m.record(contest.Figures{derivedMeanwhile: latest(inCopies).Sub(o.began).Seconds(), derivedLostThen: float64(len(m.backends.missed()))})
	return o, nil
}
