// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
)

const (
	globalService   = "service.cilium.io/global"
	sharedService   = "service.cilium.io/shared"
	syncedService   = "service.cilium.io/global-sync-endpoint-slices"
	globalNamespace = "clustermesh.cilium.io/global"
	madeFromExports = "skep.dev/imported-from-exports"
	derivedService  = "multicluster.kubernetes.io/derived-service"
	sourceCluster   = "multicluster.kubernetes.io/source-cluster"
	serviceOfSet    = "multicluster.kubernetes.io/service-name"
	meshManager     = "endpointslice-mesh-controller.cilium.io"
	copyManager     = "endpointslice-local-mcsapi-controller.cilium.io"

	supportedFamilies = "clustermesh.cilium.io/supported-ip-families"

	exportKeys = "cilium/state/serviceexports/v1/c1/"

	// mostInSlice are so few endpoints that Services have several slices.
	mostInSlice = 3
)

var endpointSlices = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")

// mesh is the remote clusters of the cluster c1, and the namespaces whose Services and exports are to be what follows from them.
type mesh struct {
	*world
	folder string
	peers  []*peer
	spaces []string
	own    *kvstoretest.Etcd // nil without
	last   error             // of rests

	before119     bool // the agents of this cluster are of 1.18
	oldestDecides bool
}

// peer is a remote cluster. What it publishes is in an etcd, which others may have their keys in, too.
type peer struct {
	*kvstoretest.Etcd
	name     string
	id       int
	services map[types.NamespacedName]published
	exports  map[types.NamespacedName]published
	lost     bool // the etcd does not have what it publishes
}

// published is what a cluster says of a Service, or of its export.
type published struct {
	cluster  string
	created  time.Time
	kind     string // of an export
	ports    []int32
	ips      []string // of a Service
	families []string // of an export, which those of 1.18 do not publish
}

func newMesh(w *world, own *kvstoretest.Etcd, spaces ...string) *mesh {
	w.t.Helper()
	w.define("ServiceExport", "ServiceImport")
	m := &mesh{world: w, own: own, folder: w.t.TempDir(), spaces: spaces}
	w.t.Cleanup(func() {
		m.clear(context.WithoutCancel(w.t.Context()))
		if m.last != nil {
			w.t.Logf("what does not follow from what clusters publish: %v", m.last)
		}
	})
	return m
}

// clear deletes the objects of the namespaces: others run in the same cluster.
func (m *mesh) clear(ctx context.Context) {
	for _, space := range m.spaces {
		for _, kind := range api.MulticlusterKinds() {
			_ = m.dynamic.Resource(kind.Resource).Namespace(space).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		}
	}
	m.clearServices(ctx)
}

func (m *mesh) args() []string {
	return []string{
		"--cluster-name=c1", "--cluster-id=1", "--clustermesh-enable-endpoint-sync", "--clustermesh-enable-mcs-api", "--clustermesh-config=" + m.folder,
		"--clustermesh-endpoint-updates-batch-period=20ms", "--clustermesh-endpoints-per-slice=" + strconv.Itoa(mostInSlice),
		"--clustermesh-mcs-api-system-namespaces", // tests run the operator in the namespace that clusters export into
	}
}

// join adds a cluster, which is read at an endpoint of the etcd. It has the next ID.
func (m *mesh) join(name string, etcd *kvstoretest.Etcd, endpoint string) *peer {
	m.t.Helper()
	p := m.publish(name, etcd, 2+len(m.peers))
	m.file(name, endpoint)
	return p
}

// publish makes a cluster that no operator is told of.
func (m *mesh) publish(name string, etcd *kvstoretest.Etcd, id int) *peer {
	m.t.Helper()
	p := &peer{Etcd: etcd, name: name, id: id, services: map[types.NamespacedName]published{}, exports: map[types.NamespacedName]published{}}
	m.peers = append(m.peers, p)
	p.fill()
	m.t.Cleanup(func() {
		ctx := context.WithoutCancel(m.t.Context())
		for _, prefix := range []string{"state/services/v1/", "state/serviceexports/v1/", "cluster-config/", "synced/"} {
			_, _ = p.Client.Delete(ctx, "cilium/"+prefix+name, clientv3.WithPrefix())
		}
	})
	return p
}

// joinHere adds a cluster whose keys are in the etcd of the control plane.
func (m *mesh) joinHere(name string) *peer {
	m.t.Helper()
	etcd := kvstoretest.Connect(m.t, m.Etcd())
	return m.join(name, etcd, etcd.Endpoints()[0])
}

// leave removes the file of a cluster.
func (m *mesh) leave(name string) {
	m.t.Helper()
	if err := os.Remove(filepath.Join(m.folder, name)); err != nil {
		m.t.Fatal(err)
	}
}

// file has the operator read a cluster at an endpoint.
func (m *mesh) file(name, endpoint string) {
	m.t.Helper()
	next := filepath.Join(m.t.TempDir(), name)
	err := os.WriteFile(next, []byte("endpoints: ["+endpoint+"]"), 0o600)
	if err == nil {
		err = os.Rename(next, filepath.Join(m.folder, name))
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// fill writes all that the cluster publishes, and the markers when it has.
func (p *peer) fill() {
	p.introduce()
	for key := range p.services {
		p.putService(key)
	}
	for key := range p.exports {
		p.putExport(key)
	}
	p.mark()
}

func (p *peer) introduce() {
	p.lost = false
	p.beat()
	p.Put("cilium/cluster-config/"+p.name, fmt.Sprintf(`{"id":%d,"capabilities":{"syncedCanaries":true,"serviceExportsEnabled":true}}`, p.id), 0)
}

func (p *peer) beat() {
	if !p.lost {
		p.Put(heartbeatKey, time.Now().UTC().Format(time.RFC3339), 0)
	}
}

func (p *peer) mark() {
	for _, prefix := range []string{"services", "serviceexports"} {
		p.Put("cilium/synced/"+p.name+"/cilium/state/"+prefix+"/v1", "now", 0)
	}
}

func (p *peer) serviceKey(of types.NamespacedName) string {
	return "cilium/state/services/v1/" + p.name + "/" + of.String()
}

func (p *peer) exportKey(of types.NamespacedName) string {
	return "cilium/state/serviceexports/v1/" + p.name + "/" + of.String()
}

func (p *peer) serve(of types.NamespacedName, port int32, ips ...string) {
	p.services[of] = published{cluster: p.name, ports: []int32{port}, ips: ips}
	p.putService(of)
}

func (p *peer) export(of types.NamespacedName, year int, kind string, ports ...int32) {
	p.exports[of] = published{cluster: p.name, created: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), kind: kind, ports: ports}
	p.putExport(of)
}

// putService writes a service as it is, or deletes it.
func (p *peer) putService(of types.NamespacedName) {
	s, exists := p.services[of]
	if !exists {
		p.put(p.serviceKey(of), nil)
		return
	}
	backends, hostnames := map[string]any{}, map[string]string{}
	for _, ip := range s.ips {
		backends[ip] = map[string]any{"http": map[string]any{"Protocol": "TCP", "Port": s.ports[0]}}
		hostnames[ip] = hostnameOf(ip)
	}
	p.put(p.serviceKey(of), map[string]any{
		"cluster": p.name, "namespace": of.Namespace, "name": of.Name, "frontends": map[string]any{}, "backends": backends, "hostnames": hostnames,
		"includeExternal": true, "shared": true, "clusterID": p.id,
	})
}

func hostnameOf(ip string) string { return "host-" + strings.ReplaceAll(ip, ".", "-") }

// putExport writes an export as it is, or deletes it.
func (p *peer) putExport(of types.NamespacedName) {
	e, exists := p.exports[of]
	if !exists {
		p.put(p.exportKey(of), nil)
		return
	}
	ports := []any{}
	for i, n := range e.ports {
		ports = append(ports, map[string]any{"name": portNames[i], "protocol": "TCP", "port": n})
	}
	value := map[string]any{
		"cluster": p.name, "namespace": of.Namespace, "name": of.Name, "exportCreationTimestamp": e.created, "ports": ports, "type": e.kind, "sessionAffinity": "None",
	}
	if e.families != nil {
		value["ipFamilies"] = e.families
	}
	p.put(p.exportKey(of), value)
}

var portNames = []string{"http", "more"}

// put writes a key, or deletes it. An etcd that has lost all is filled later.
func (p *peer) put(key string, value any) {
	if p.lost {
		return
	}
	if value == nil {
		p.Delete(key)
		return
	}
	text, _ := json.Marshal(value) // maps of strings and numbers have JSON
	p.Put(key, string(text), 0)
}

// apply creates an object of a user, or replaces its fields.
func (m *mesh) apply(resource schema.GroupVersionResource, kind, namespace, name string, content map[string]any) {
	m.t.Helper()
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(resource.GroupVersion().String())
	u.SetKind(kind)
	u.SetName(name)
	_, err := m.dynamic.Resource(resource).Namespace(namespace).Apply(m.t.Context(), name, u, metav1.ApplyOptions{FieldManager: "user", Force: true})
	if err != nil {
		m.t.Error(err)
	}
}

// service makes a Service without a selector, and a slice of an endpoint that its user writes.
func (m *mesh) service(namespace, name, address string, headless bool) {
	m.t.Helper()
	spec := map[string]any{"ipFamilies": []any{"IPv4"}, "ipFamilyPolicy": "SingleStack"} // a headless Service without a selector has two families by default
	if headless {
		spec["clusterIP"] = corev1.ClusterIPNone
	}
	m.serviceOf(namespace, name, address, spec)
}

// serviceOf is service with the given spec, but for the port.
func (m *mesh) serviceOf(namespace, name, address string, spec map[string]any) {
	m.t.Helper()
	spec["ports"] = []any{map[string]any{"name": "http", "port": int64(80), "protocol": "TCP"}}
	m.apply(services, "Service", namespace, name, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{globalService: "true"}, "labels": map[string]any{"app": name}}, "spec": spec,
	})
	m.apply(endpointSlices, "EndpointSlice", namespace, name, map[string]any{
		"metadata":    map[string]any{"labels": map[string]any{discoveryv1.LabelServiceName: name}},
		"addressType": "IPv4", "endpoints": []any{map[string]any{"addresses": []any{address}}},
		"ports": []any{map[string]any{"name": "http", "port": int64(8080), "protocol": "TCP"}},
	})
}

func (m *mesh) serviceExport(namespace, name string) {
	m.t.Helper()
	m.apply(api.ServiceExportResource, "ServiceExport", namespace, name, map[string]any{})
}

// serviceImport makes a ServiceImport of a user.
func (m *mesh) serviceImport(namespace, name, kind string) {
	m.t.Helper()
	m.apply(api.ServiceImportResource, "ServiceImport", namespace, name, map[string]any{
		"spec": map[string]any{"type": kind, "ports": []any{map[string]any{"name": "http", "port": int64(80), "protocol": "TCP"}}},
	})
}

// derivedServiceName is that of the derived Service of a name.
func derivedServiceName(of types.NamespacedName) string {
	sum := sha256.Sum256([]byte(of.String()))
	return "derived-" + strings.ToLower(base32.HexEncoding.EncodeToString(sum[:]))[:10]
}

// meshObjects are the objects of a namespace.
type meshObjects struct {
	namespace string
	isGlobal  bool
	services  map[string]*corev1.Service
	slices    []discoveryv1.EndpointSlice
	exports   map[string]*mcsv1alpha1.ServiceExport
	imports   map[string]*mcsv1alpha1.ServiceImport
}

func (o *meshObjects) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: o.namespace, Name: name}
}

func (m *mesh) objects(namespace string) (*meshObjects, error) {
	ctx := m.t.Context()
	o := &meshObjects{
		namespace: namespace, services: map[string]*corev1.Service{},
		exports: map[string]*mcsv1alpha1.ServiceExport{}, imports: map[string]*mcsv1alpha1.ServiceImport{},
	}
	ns, err := m.core.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	scope, annotated := ns.Annotations[globalNamespace]
	o.isGlobal = !annotated || scope == "true"
	all, err := m.core.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range all.Items {
		o.services[all.Items[i].Name] = &all.Items[i]
	}
	list, err := m.core.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	o.slices = list.Items
	return o, errors.Join(readInto(m, api.ServiceExportResource, namespace, o.exports), readInto(m, api.ServiceImportResource, namespace, o.imports))
}

func readInto[T any](m *mesh, resource schema.GroupVersionResource, namespace string, into map[string]*T) error {
	list, err := m.dynamic.Resource(resource).Namespace(namespace).List(m.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, u := range list.Items {
		object := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, object); err != nil {
			return err
		}
		into[u.GetName()] = object
	}
	return nil
}

// rest says what does not follow from the Namespaces, the Services, the ServiceExports, the ServiceImports of users, and what
// the remote clusters publish.
func (m *mesh) rest() error {
	var errs []error
	for _, namespace := range m.spaces {
		o, err := m.objects(namespace)
		if err != nil {
			return err
		}
		names := map[string]bool{}
		for name := range o.exports {
			names[name] = true
		}
		for name := range o.imports {
			names[name] = true
		}
		for _, p := range m.peers {
			for key := range p.exports {
				names[key.Name] = names[key.Name] || key.Namespace == namespace
			}
		}
		derived := map[string]bool{}
		for name := range names {
			derived[derivedServiceName(o.key(name))] = true
			errs = append(errs, m.importRest(o, name), m.exportRest(o, name))
		}
		for name := range o.services {
			if strings.HasPrefix(name, "derived-") && !derived[name] {
				errs = append(errs, fmt.Errorf("the Service %s/%s is derived of nothing", namespace, name))
			}
		}
		errs = append(errs, m.slicesRest(o), m.copiesRest(o), m.keysRest(o))
	}
	return errors.Join(errs...)
}

// rests reports whether rest has nothing to say. What it says last is logged if the test fails.
func (m *mesh) rests() bool {
	m.last = m.rest()
	return m.last == nil
}

// isValid reports whether this cluster exports a name.
func (o *meshObjects) isValid(name string) bool {
	return o.isGlobal && o.exports[name] != nil && o.services[name] != nil
}

// exported are the exports of a name, the oldest first; that of this cluster is before all others, where it decides (MCS-47).
func (m *mesh) exported(o *meshObjects, name string) (all []published) {
	for _, p := range m.peers {
		if e, exists := p.exports[o.key(name)]; exists {
			all = append(all, e)
		}
	}
	if o.isValid(name) {
		all = append(all, m.exportHere(o, name))
	}
	isFirst := func(e published) int {
		if e.cluster == "c1" && !m.oldestDecides {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b published) int {
		return cmp.Or(cmp.Compare(isFirst(a), isFirst(b)), a.created.Compare(b.created), cmp.Compare(a.cluster, b.cluster))
	})
	return all
}

// exportHere is what this cluster publishes of a Service that it exports.
func (m *mesh) exportHere(o *meshObjects, name string) published {
	own, s := published{cluster: "c1", created: o.exports[name].CreationTimestamp.Time, kind: "ClusterSetIP"}, o.services[name]
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		own.kind = "Headless"
	}
	for _, p := range s.Spec.Ports {
		own.ports = append(own.ports, p.Port)
	}
	for _, f := range s.Spec.IPFamilies {
		own.families = append(own.families, string(f))
	}
	if m.before119 && slices.Equal(own.families, []string{"IPv4"}) {
		own.families = nil
	}
	return own
}

// mergedFamilies are the IP families that exports have in common (MCS-37). One that has none of them does not count.
func mergedFamilies(all []published) (families []string, conflict bool) {
	for _, e := range all {
		common := slices.DeleteFunc(slices.Clone(families), func(f string) bool { return !slices.Contains(e.families, f) })
		switch {
		case e.families == nil:
		case families == nil:
			families = e.families
		case len(common) == 0:
			conflict = true
		default:
			families = common
		}
	}
	return families, conflict
}

// conflictsOf are the reasons of the condition Conflict of exports.
func conflictsOf(all []published) (reasons []string) {
	if _, conflict := merged(all); conflict {
		reasons = append(reasons, "PortConflict")
	}
	if slices.ContainsFunc(all, func(other published) bool { return other.kind != all[0].kind }) {
		reasons = append(reasons, "TypeConflict")
	}
	if _, conflict := mergedFamilies(all); conflict {
		reasons = append(reasons, "IPFamilyConflict")
	}
	if reasons == nil {
		return []string{"NoConflicts"}
	}
	return reasons
}

// merged are the ports of exports: of each name that of the first one that has it.
func merged(all []published) (ports []int32, conflict bool) {
	for i := range portNames {
		first := int32(0)
		for _, e := range all {
			switch {
			case len(e.ports) <= i:
			case first == 0:
				first = e.ports[i]
			case first != e.ports[i]:
				conflict = true
			}
		}
		if first != 0 {
			ports = append(ports, first)
		}
	}
	return ports, conflict
}

// importRest: the ServiceImport of a name, and its derived Service.
func (m *mesh) importRest(o *meshObjects, name string) error {
	all, i := m.exported(o, name), o.imports[name]
	what := fmt.Sprintf("the ServiceImport %s/%s", o.namespace, name)
	switch {
	case i == nil && len(all) > 0:
		return fmt.Errorf("%s of %v is missing", what, all)
	case i == nil:
		if d := o.services[derivedServiceName(o.key(name))]; d != nil {
			return fmt.Errorf("%s does not exist, and its Service %s does", what, d.Name)
		}
		return nil
	case i.DeletionTimestamp != nil:
		return fmt.Errorf("%s is terminating", what)
	}
	var clusters, names []string
	for _, e := range all {
		names = append(names, e.cluster)
	}
	for _, c := range i.Status.Clusters {
		clusters = append(clusters, c.Cluster)
	}
	if slices.Sort(names); !slices.Equal(names, clusters) {
		return fmt.Errorf("%s is of %q, and is to be of %q", what, clusters, names)
	}
	if value, says := i.Annotations[madeFromExports]; says && value != "false" {
		if len(all) == 0 {
			return fmt.Errorf("%s is left", what)
		}
		var has []int32
		for _, p := range i.Spec.Ports {
			has = append(has, p.Port)
		}
		ports, _ := merged(all)
		families, _ := mergedFamilies(all)
		if string(i.Spec.Type) != all[0].kind || !slices.Equal(has, ports) || fmt.Sprint(i.Spec.IPFamilies) != fmt.Sprint(families) {
			return fmt.Errorf("%s is %s %v %v, and is to be %s %v %v", what, i.Spec.Type, has, i.Spec.IPFamilies, all[0].kind, ports, families)
		}
	}
	return m.derivedRest(o, i)
}

// derivedRest: the derived Service of a ServiceImport.
func (m *mesh) derivedRest(o *meshObjects, i *mcsv1alpha1.ServiceImport) error {
	name := derivedServiceName(o.key(i.Name))
	d, what := o.services[name], fmt.Sprintf("the Service %s/%s, derived of %s,", o.namespace, name, i.Name)
	ready := meta.IsStatusConditionTrue(i.Status.Conditions, string(mcsv1alpha1.ServiceImportConditionReady))
	isSupported := len(i.Spec.IPFamilies) == 0 || slices.Contains(i.Spec.IPFamilies, corev1.IPv4Protocol)
	if !o.isGlobal || !isSupported {
		if d != nil || len(i.Spec.IPs) > 0 || i.Annotations[derivedService] != "" || ready {
			return fmt.Errorf("%s exists or is referred to, and the Namespace is not global (%t), or its IP families are not supported (%v)", what, !o.isGlobal, i.Spec.IPFamilies)
		}
		return nil
	}
	if d == nil {
		return fmt.Errorf("%s is missing", what)
	}
	headless := d.Spec.ClusterIP == corev1.ClusterIPNone
	supported := d.Annotations[supportedFamilies] // IPv6, too, where the options of the test have it and no export says that it has IPv4
	if m.before119 && supported == "" {
		supported = "IPv4"
	} else if supported != "IPv4" && (supported != "IPv4,IPv6" || len(i.Spec.IPFamilies) > 0) {
		return fmt.Errorf("%s says that it supports %q, and the ServiceImport %v", what, supported, i.Spec.IPFamilies)
	}
	ips := d.Spec.ClusterIPs
	if supported == "IPv4" {
		ips = ips[:1]
	}
	if headless {
		ips = nil
	}
	var has, ports []string
	for _, p := range d.Spec.Ports {
		has = append(has, fmt.Sprint(p.Name, p.Port))
	}
	for _, p := range i.Spec.Ports {
		ports = append(ports, fmt.Sprint(p.Name, p.Port))
	}
	owners := []types.UID{i.UID}
	labels, annotations := map[string]string{}, map[string]string{}
	maps.Copy(labels, i.Labels)
	maps.Copy(annotations, i.Annotations)
	labels[serviceOfSet], labels[sourceCluster] = i.Name, "c1"
	annotations[globalService], annotations[sharedService] = "true", strconv.FormatBool(o.isValid(i.Name))
	if !m.before119 {
		annotations[supportedFamilies] = supported
	}
	delete(annotations, madeFromExports)
	delete(annotations, derivedService)
	switch {
	case headless != (i.Spec.Type == mcsv1alpha1.Headless), !slices.Equal(has, ports):
		return fmt.Errorf("%s has %q, headless: %t, and the ServiceImport is %s %q", what, has, headless, i.Spec.Type, ports)
	case !slices.Equal(i.Spec.IPs, ips), i.Annotations[derivedService] != name, !ready:
		return fmt.Errorf("%s has %q, and the ServiceImport %q, ready: %t", what, ips, i.Spec.IPs, ready)
	case !maps.Equal(labels, d.Labels), !maps.Equal(annotations, d.Annotations):
		return fmt.Errorf("%s has %v and %v, and is to have %v and %v", what, d.Labels, d.Annotations, labels, annotations)
	case !slices.EqualFunc(d.OwnerReferences, owners, func(has metav1.OwnerReference, want types.UID) bool { return has.UID == want }):
		return fmt.Errorf("%s has the owners %v, and is to have %q", what, d.OwnerReferences, owners)
	}
	return nil
}

// exportRest: the conditions of the ServiceExport of a name.
func (m *mesh) exportRest(o *meshObjects, name string) error {
	e := o.exports[name]
	if e == nil {
		return nil
	}
	want := "NoService"
	switch {
	case !o.isGlobal:
		want = "NamespaceNotGlobal"
	case o.isValid(name):
		want = "Valid"
	}
	valid := meta.FindStatusCondition(e.Status.Conditions, "Valid")
	if valid == nil || valid.Reason != want || (valid.Status == metav1.ConditionTrue) != o.isValid(name) {
		return fmt.Errorf("the ServiceExport %s/%s is to be %s, and has %v", o.namespace, name, want, e.Status.Conditions)
	}
	if !o.isValid(name) {
		return nil
	}
	all := m.exported(o, name)
	reasons, has := conflictsOf(all), meta.FindStatusCondition(e.Status.Conditions, "Conflict")
	if has == nil || has.Reason != strings.Join(reasons, ",") || (has.Status == metav1.ConditionTrue) == (reasons[0] == "NoConflicts") {
		return fmt.Errorf("the ServiceExport %s/%s of %v is to have %q, and has %v", o.namespace, name, all, reasons, e.Status.Conditions)
	}
	return nil
}

// participates reports whether a Service gets slices of remote clusters.
func participates(s *corev1.Service) bool {
	sync, set := s.Annotations[syncedService]
	return s.Annotations[globalService] == "true" && (sync == "true" || !set && s.Spec.ClusterIP == corev1.ClusterIPNone)
}

// slicesRest: each endpoint of a remote cluster is once in the slices of the Service, and no other is.
func (m *mesh) slicesRest(o *meshObjects) error {
	var errs []error
	want := map[string]string{}
	for name, s := range o.services {
		for _, p := range m.peers {
			of := p.services[o.key(name)]
			for _, ip := range of.ips {
				if participates(s) {
					want[fmt.Sprint(name, " ", p.name, " ", ip)] = fmt.Sprint(hostnameOf(ip), of.ports, s.UID)
				}
			}
		}
	}
	for _, slice := range o.slices {
		cluster := slice.Labels[sourceCluster]
		if slice.Labels[discoveryv1.LabelManagedBy] != meshManager || cluster == "" {
			continue
		}
		name := slice.Labels[discoveryv1.LabelServiceName]
		if n := len(slice.Endpoints); n == 0 || n > mostInSlice || len(slice.OwnerReferences) != 1 || len(slice.Ports) != 1 || !maps.Equal(slice.Labels, sliceLabels(o.services[name], cluster)) {
			errs = append(errs, fmt.Errorf("the slice %s/%s has %d endpoints, the labels %v, and the owners %v", o.namespace, slice.Name, n, slice.Labels, slice.OwnerReferences))
			continue
		}
		for _, e := range slice.Endpoints {
			hostname := ""
			if e.Hostname != nil {
				hostname = *e.Hostname
			}
			key, has := fmt.Sprint(name, " ", cluster, " ", e.Addresses[0]), fmt.Sprint(hostname, []int32{*slice.Ports[0].Port}, slice.OwnerReferences[0].UID)
			if want[key] != has {
				errs = append(errs, fmt.Errorf("the slice %s/%s has %s with %s, and is to have it with %q", o.namespace, slice.Name, key, has, want[key]))
			}
			delete(want, key)
		}
	}
	if len(want) > 0 {
		errs = append(errs, fmt.Errorf("endpoints of %s that are in no slice: %v", o.namespace, want))
	}
	return errors.Join(errs...)
}

// sliceLabels are those of the slices of a remote cluster.
func sliceLabels(s *corev1.Service, cluster string) map[string]string {
	if s == nil {
		return nil
	}
	labels := map[string]string{}
	maps.Copy(labels, s.Labels)
	labels[discoveryv1.LabelManagedBy], labels[discoveryv1.LabelServiceName], labels[sourceCluster] = meshManager, s.Name, cluster
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		labels[corev1.IsHeadlessService] = ""
	}
	return labels
}

// leads reports whether the derived Service of a name has a port of a slice as the Service has it.
func (o *meshObjects) leads(name string, slice discoveryv1.EndpointSlice) bool {
	number := func(s *corev1.Service, port string) int32 {
		for i := 0; s != nil && i < len(s.Spec.Ports); i++ {
			if s.Spec.Ports[i].Name == port {
				return s.Spec.Ports[i].Port
			}
		}
		return 0
	}
	return slices.ContainsFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool {
		n := number(o.services[name], *p.Name)
		return n != 0 && n == number(o.services[derivedServiceName(o.key(name))], *p.Name)
	})
}

// copiesRest: each slice of a Service that this cluster exports has a copy for the derived Service.
func (m *mesh) copiesRest(o *meshObjects) error {
	text := func(of, source string, slice discoveryv1.EndpointSlice) string {
		var addresses []string
		for _, e := range slice.Endpoints {
			addresses = append(addresses, e.Addresses...)
		}
		return fmt.Sprint(of, " ", source, " ", addresses)
	}
	want, has := map[string]bool{}, map[string]bool{}
	for _, slice := range o.slices {
		name, manager := slice.Labels[discoveryv1.LabelServiceName], slice.Labels[discoveryv1.LabelManagedBy]
		derived := derivedServiceName(o.key(name))
		switch {
		case manager == copyManager:
			has[text(name, slice.Labels["service.cilium.io/local-endpointslice"], slice)] = true
		case manager != meshManager && o.isValid(name) && o.services[derived] != nil && (m.before119 || o.leads(name, slice)):
			want[text(derived, slice.Name, slice)] = true
		}
	}
	if !maps.Equal(want, has) {
		return fmt.Errorf("the copies of slices in %s are %v, and are to be %v", o.namespace, has, want)
	}
	return nil
}

// keysRest: what this cluster publishes of its exports.
func (m *mesh) keysRest(o *meshObjects) error {
	if m.own == nil {
		return nil
	}
	folder := exportKeys + o.namespace + "/"
	resp, err := m.own.Client.Get(m.t.Context(), folder, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	has, want := map[string]string{}, map[string]string{}
	for _, kv := range resp.Kvs {
		var e struct {
			Type  string
			Ports []struct{ Port int32 }
		}
		_ = json.Unmarshal(kv.Value, &e) // what is no JSON differs
		has[strings.TrimPrefix(string(kv.Key), folder)] = fmt.Sprint(e.Type, e.Ports)
	}
	for name := range o.exports {
		for _, e := range m.exported(o, name) {
			if e.cluster == "c1" {
				var ports []struct{ Port int32 }
				for _, p := range e.ports {
					ports = append(ports, struct{ Port int32 }{p})
				}
				want[name] = fmt.Sprint(e.kind, ports)
			}
		}
	}
	if !maps.Equal(has, want) {
		return fmt.Errorf("the exports of %s in etcd are %v, and are to be %v", o.namespace, has, want)
	}
	return nil
}
