// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cells_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/cells"
	"github.com/skep-operator/skep/resources/agents"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/stream/streamtest"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/logging/logtest"
)

// All duties on an API server in memory, in a bubble of testing/synctest: hours of
// a cluster take milliseconds.

// kind is a kind of objects that the server has.
type kind struct {
	gvr  schema.GroupVersionResource
	name string
	core runtime.Object // of core kinds, the full type
}

var kinds = []kind{
	{corev1.SchemeGroupVersion.WithResource("nodes"), "Node", &corev1.Node{}},
	{corev1.SchemeGroupVersion.WithResource("namespaces"), "Namespace", &corev1.Namespace{}},
	{corev1.SchemeGroupVersion.WithResource("pods"), "Pod", &corev1.Pod{}},
	{corev1.SchemeGroupVersion.WithResource("services"), "Service", &corev1.Service{}},
	{v2.CiliumNodeResource, "CiliumNode", nil},
	{v2.CiliumIdentityResource, "CiliumIdentity", nil},
	{v2.CiliumEndpointResource, "CiliumEndpoint", nil},
	{v2alpha1.CiliumEndpointSliceResource, "CiliumEndpointSlice", nil},
	{v2.CiliumLoadBalancerIPPoolResource, "CiliumLoadBalancerIPPool", nil},
	{v2alpha1.CiliumPodIPPoolResource, "CiliumPodIPPool", nil},
	{v2.CiliumNetworkPolicyResource, "CiliumNetworkPolicy", nil},
	{v2.CiliumClusterwideNetworkPolicyResource, "CiliumClusterwideNetworkPolicy", nil},
}

func kindNamed(name string) kind {
	return kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })]
}

// memory is an API server. It takes objects as they are: schemas are lax.
type memory struct {
	t      *testing.T
	stream *streamtest.Server

	mu      sync.Mutex
	objects map[string]map[slim.Key]map[string]any // by resource
	writes  []string                               // "PUT ciliumnodes n1/status"
}

func newMemory(t *testing.T) *memory {
	m := &memory{t: t, stream: streamtest.NewServer(), objects: map[string]map[slim.Key]map[string]any{}}
	for _, k := range kinds {
		m.stream.Serve(k.gvr, k.name, k.core == nil)
		m.objects[k.gvr.Resource] = map[slim.Key]map[string]any{}
	}
	return m
}

func keyOf(object map[string]any) slim.Key {
	u := unstructured.Unstructured{Object: object}
	return slim.Key{Namespace: u.GetNamespace(), Name: u.GetName()}
}

// put creates or replaces an object.
func (m *memory) put(k kind, object map[string]any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store(k, object)
}

// store is put with the lock held. It returns the object as stored.
func (m *memory) store(k kind, object map[string]any) map[string]any {
	object = runtime.DeepCopyJSON(object)
	u := unstructured.Unstructured{Object: object}
	u.SetAPIVersion(k.gvr.GroupVersion().String())
	u.SetKind(k.name)
	if created := u.GetCreationTimestamp(); created.IsZero() {
		u.SetCreationTimestamp(metav1.Unix(9e8, 0)) // before bubbles begin
	}
	old := m.objects[k.gvr.Resource][keyOf(object)]
	if u.SetUID(types.UID(fmt.Sprintf("uid-%s-%s-%s", k.name, u.GetNamespace(), u.GetName()))); old != nil {
		u.SetUID((&unstructured.Unstructured{Object: old}).GetUID())
	}
	var full any = object
	if k.core != nil {
		core := k.core.DeepCopyObject()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, core); err != nil {
			m.t.Fatal(err)
		}
		full = core
	}
	u.SetResourceVersion(m.stream.Put(k.gvr, full).String())
	m.objects[k.gvr.Resource][keyOf(object)] = object
	return object
}

// cut has the server send an object without its end.
func (m *memory) cut(k kind, object map[string]any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	core := k.core.DeepCopyObject()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, core); err != nil {
		m.t.Fatal(err)
	}
	core.(metav1.Object).SetResourceVersion((m.stream.Revision() + 1).String())
	raw, err := core.(interface{ Marshal() ([]byte, error) }).Marshal()
	if err != nil {
		m.t.Fatal(err)
	}
	m.stream.PutRaw(k.gvr, keyOf(object), raw[:len(raw)-1])
}

// snapshot are all objects, by kind and key.
func (m *memory) snapshot() map[string]map[slim.Key]map[string]any {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]map[slim.Key]map[string]any{}
	for resource, objects := range m.objects {
		all[resource] = maps.Clone(objects)
	}
	return all
}

func (m *memory) get(k kind, key slim.Key) map[string]any {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[k.gvr.Resource][key]
}

// written are the writes since the last call.
func (m *memory) written() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.writes
	m.writes = nil
	return w
}

// ServeHTTP implements http.Handler: lists and watches are the streams' server's.
func (m *memory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k, key, subresource, ok := m.route(r.URL.Path)
	if !ok || r.Method == http.MethodGet && key.Name == "" {
		m.stream.ServeHTTP(w, r)
		return
	}
	var sent map[string]any
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		u := unstructured.Unstructured{}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = u.UnmarshalJSON(body)
		}
		if err != nil {
			m.t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
			return
		}
		sent, key = u.Object, keyOf(u.Object)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.objects[k.gvr.Resource][key]
	answer := func(code int, object any) {
		if status, failed := object.(metav1.Status); failed {
			status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			object = status
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(object)
	}
	if r.Method != http.MethodGet {
		text := r.Method + " " + k.gvr.Resource + " " + key.String()
		if subresource != "" {
			text += "/" + subresource
		}
		m.writes = append(m.writes, text)
	}
	switch {
	case now == nil && r.Method != http.MethodPost:
		answer(http.StatusNotFound, apierrors.NewNotFound(k.gvr.GroupResource(), key.Name).Status())
	case r.Method == http.MethodGet:
		answer(http.StatusOK, now)
	case r.Method == http.MethodPost && now != nil:
		answer(http.StatusConflict, apierrors.NewAlreadyExists(k.gvr.GroupResource(), key.Name).Status())
	case r.Method == http.MethodPost, r.Method == http.MethodPut && revisionOf(sent) == revisionOf(now):
		answer(http.StatusOK, m.store(k, sent))
	case r.Method == http.MethodPatch:
		patched, err := patch(now, r.Body)
		if err != nil {
			answer(http.StatusUnprocessableEntity, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", k.gvr.GroupResource(), key.Name, err.Error(), 0, false).Status())
			return
		}
		answer(http.StatusOK, m.store(k, patched))
	case r.Method == http.MethodDelete:
		delete(m.objects[k.gvr.Resource], key)
		m.stream.Delete(k.gvr, key)
		answer(http.StatusOK, metav1.Status{Status: metav1.StatusSuccess})
	default:
		answer(http.StatusConflict, apierrors.NewConflict(k.gvr.GroupResource(), key.Name, nil).Status())
	}
}

// patch applies a JSON patch.
func patch(object map[string]any, body io.Reader) (map[string]any, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	p, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return nil, err
	}
	before, err := (&unstructured.Unstructured{Object: object}).MarshalJSON()
	if err != nil {
		return nil, err
	}
	after, err := p.Apply(before)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	err = u.UnmarshalJSON(after)
	return u.Object, err
}

func revisionOf(object map[string]any) string {
	return (&unstructured.Unstructured{Object: object}).GetResourceVersion()
}

// route finds what a path names.
func (m *memory) route(path string) (k kind, key slim.Key, subresource string, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	parts = parts[min(len(parts), 2):] // api, v1
	if strings.HasPrefix(path, "/apis/") {
		parts = parts[min(len(parts), 1):]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		key.Namespace, parts = parts[1], parts[2:]
	}
	for _, k = range kinds {
		if len(parts) > 0 && k.gvr.Resource == parts[0] {
			ok = true
			break
		}
	}
	if len(parts) > 1 {
		key.Name = parts[1]
	}
	if len(parts) > 2 {
		subresource = parts[2]
	}
	return k, key, subresource, ok
}

// memoryClient is the way of all modules to the server.
type memoryClient struct {
	m   *memory
	dyn dynamic.Interface
}

func newMemoryClient(m *memory) (k8s.Client, error) {
	c := &memoryClient{m: m}
	var err error
	c.dyn, err = dynamic.NewForConfig(c.RESTConfig())
	return c, err
}

func (c *memoryClient) RESTConfig() *rest.Config {
	return &rest.Config{Host: "http://server.test", Transport: streamtest.Transport(c.m), QPS: -1}
}

func (c *memoryClient) of(ref k8s.Ref) dynamic.ResourceInterface {
	if ref.Namespace == "" {
		return c.dyn.Resource(ref.Resource)
	}
	return c.dyn.Resource(ref.Resource).Namespace(ref.Namespace)
}

func (c *memoryClient) Get(ctx context.Context, ref k8s.Ref) (*unstructured.Unstructured, error) {
	return c.of(ref).Get(ctx, ref.Name, metav1.GetOptions{})
}

func (c *memoryClient) Create(ctx context.Context, r schema.GroupVersionResource, obj runtime.Object) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	text, err := json.Marshal(obj)
	if err == nil {
		err = json.Unmarshal(text, &u.Object)
	}
	if err != nil {
		return nil, err
	}
	return c.of(k8s.Ref{Resource: r, Namespace: u.GetNamespace()}).Create(ctx, u, metav1.CreateOptions{})
}

func (c *memoryClient) Update(ctx context.Context, r schema.GroupVersionResource, obj runtime.Object) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	text, err := json.Marshal(obj)
	if err == nil {
		err = json.Unmarshal(text, &u.Object)
	}
	if err != nil {
		return nil, err
	}
	return c.of(k8s.Ref{Resource: r, Namespace: u.GetNamespace()}).Update(ctx, u, metav1.UpdateOptions{})
}

func (c *memoryClient) Modify(ctx context.Context, ref k8s.Ref, edit func(*unstructured.Unstructured) error) (*unstructured.Unstructured, bool, error) {
	u, err := c.Get(ctx, ref)
	if err != nil {
		return nil, false, err
	}
	before := u.DeepCopy()
	if err := edit(u); err != nil {
		return nil, false, err
	}
	if fmt.Sprint(before.Object) == fmt.Sprint(u.Object) {
		return u, false, nil
	}
	var sub []string
	if ref.Subresource != "" {
		sub = []string{ref.Subresource}
	}
	u, err = c.of(ref).Update(ctx, u, metav1.UpdateOptions{}, sub...)
	return u, err == nil, err
}

func (c *memoryClient) Patch(ctx context.Context, ref k8s.Ref, patch []byte, _ ...k8s.PatchedValue) (*unstructured.Unstructured, error) {
	var sub []string
	if ref.Subresource != "" {
		sub = []string{ref.Subresource}
	}
	return c.of(ref).Patch(ctx, ref.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, sub...)
}

func (c *memoryClient) Delete(ctx context.Context, ref k8s.Ref, _ k8s.Preconditions) error {
	return c.of(ref).Delete(ctx, ref.Name, metav1.DeleteOptions{})
}

// firstLeader hands over nothing.
type firstLeader struct{}

func (firstLeader) PredecessorRevision(context.Context, schema.GroupVersionResource) (uint64, bool, error) {
	return 0, false, nil
}
func (firstLeader) WasLeader() bool                                  { return false }
func (firstLeader) RecordSynced(schema.GroupVersionResource, uint64) {}

// inMemory is an operator that leads on a server in memory.
type inMemory struct {
	hive   *hive.Hive
	term   lifecycle.Term
	health *health.Tree
	log    *logtest.Buffer
}

type memoryTerm struct {
	cell.In

	Term lifecycle.Term `name:"leader"`
	Tree *health.Tree
}

// start has all duties work.
func (m *memory) start(args ...string) *inMemory {
	m.t.Helper()
	o := &inMemory{log: &logtest.Buffer{}}
	client := cell.Module("k8s", "Reaches an API server in memory",
		cell.Config(k8s.DefaultConfig),
		cell.Provide(
			func() (k8s.Client, error) { return newMemoryClient(m) },
			func() leading.Handover { return firstLeader{} },
			func() *k8s.Permissions { return &k8s.Permissions{} },
			func() *k8s.Events { return nil },
			func() *leading.Fence { return nil },
		),
	)
	lead := cell.Module("test.leading", "Enters the term", cell.Hook("lead", func(p memoryTerm) lifecycle.Hook {
		o.term, o.health = p.Term, p.Tree
		return lifecycle.Funcs{OnStart: p.Term.Enter, OnStop: p.Term.Leave}
	}))
	o.hive = hive.New("operator", cell.Set(
		cluster.Cell(cluster.DefaultConfig), release.Cell, explain.Cell, dryrun.Cell, client, reconcile.Cell, sweep.Cell, stream.Cell, ciliumio.Cell, agents.Cell, networkpolicy.Cell, envoy.Cell, secretref.Cell,
		lead, cell.Term("leader", cells.Duties),
	), hive.LogTo(o.log), hive.Environ(func(string) (string, bool) { return "", false }))
	flags := o.hive.FlagSet()
	if err := flags.Parse(args); err != nil {
		m.t.Fatal(err)
	}
	if err := o.hive.Configure(flags); err != nil {
		m.t.Fatal(err)
	}
	if err := o.hive.Build(); err != nil {
		m.t.Fatal(err)
	}
	if err := o.hive.Start(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	return o
}

func (o *inMemory) stop(t *testing.T) {
	t.Helper()
	if err := o.hive.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

func (o *inMemory) graph() *graph.Graph { return o.hive.Graph() }

// degraded is what is degraded, and why.
func (o *inMemory) degraded() string {
	var b strings.Builder
	for _, s := range o.health.Degraded() {
		fmt.Fprintf(&b, "%s: %s: %s\n", s.ID, s.Message, s.Error)
	}
	return b.String()
}
