// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeipam

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/stream/streamtest"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// statusClient is a server with one Service.
type statusClient struct {
	k8s.Client
	object *unstructured.Unstructured
	writes int
}

func (c *statusClient) Modify(_ context.Context, _ k8s.Ref, edit func(*unstructured.Unstructured) error) (*unstructured.Unstructured, bool, error) {
	c.writes++
	return c.object, true, edit(c.object)
}

func (c *statusClient) ips() (ips []string) {
	all, _, _ := unstructured.NestedSlice(c.object.Object, "status", "loadBalancer", "ingress")
	for _, i := range all {
		ips = append(ips, i.(map[string]any)["ip"].(string))
	}
	return ips
}

// NIPAM-10: a node that cannot be decoded may have any address, so that none is removed until it can be, or is deleted.
func TestUndecodableNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, gvr := streamtest.NewServer(), streamtest.Widgets // a custom resource: its fields can be of any type
		server.Serve(gvr, "Widget", true)
		server.Put(gvr, map[string]any{"metadata": map[string]any{"name": "good"}, "status": map[string]any{
			"addresses": []any{map[string]any{"type": "InternalIP", "address": "10.0.0.2"}}}})
		server.Put(gvr, map[string]any{"metadata": map[string]any{"name": "bad"}, "status": 7})
		all, err := stream.New(stream.NewSource(server.Connect()), stream.Custom[node](gvr))
		if err != nil {
			t.Fatal(err)
		}
		defer all.Close()
		local, err := stream.NewLocal[service]()
		if err != nil {
			t.Fatal(err)
		}
		s := testService("web", func(s *service) { s.Status.LoadBalancer.Ingress = []ingress{{slim.MakeString("10.0.0.1")}} })
		local.Replace(s)

		client := &statusClient{object: &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "web", "resourceVersion": s.ResourceVersion.String()},
			"status":   map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": "10.0.0.1"}}}},
		}}}
		c := newController(params{
			Cluster: cluster.DefaultConfig, Services: local, Nodes: all, Client: client,
			Metrics: newMetrics(metrics.Factory{}), Health: health.NewTree().Reporter("nodeipam"), Log: slog.New(slog.DiscardHandler),
		})
		if err := c.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		result, err := c.Reconcile(t.Context(), s.Key())
		if want := []string{"10.0.0.1", "10.0.0.2"}; err != nil || !slices.Equal(client.ips(), want) || result.RequeueAfter == 0 {
			t.Fatalf("%v, %v; the addresses are %v, want %v", result, err, client.ips(), want)
		}
		good := map[string]any{"metadata": map[string]any{"name": "good"}, "status": map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": "10.0.0.2"}}}}
		server.Delete(gvr, slim.Key{Name: "good"})
		synctest.Wait()
		if _, err := c.Reconcile(t.Context(), s.Key()); err != nil || c.states.all[s.Key()].name != served || len(client.ips()) != 2 {
			t.Errorf("%v; without another node the addresses are %v, and the state is %v", err, client.ips(), c.states.all[s.Key()])
		}
		server.Put(gvr, good)
		server.Delete(gvr, slim.Key{Name: "bad"})
		synctest.Wait()
		result, err = c.Reconcile(t.Context(), s.Key())
		if want := []string{"10.0.0.2"}; err != nil || !slices.Equal(client.ips(), want) || result.RequeueAfter != 0 {
			t.Errorf("%v, %v; the addresses are %v, want %v", result, err, client.ips(), want)
		}
	})
}

// NIPAM-5: a change of a node concerns the Services that are served, once all are known.
func TestNodeChanged(t *testing.T) {
	local, err := stream.NewLocal[service]()
	if err != nil {
		t.Fatal(err)
	}
	without := func(s *service) { s.Spec.LoadBalancerClass = slim.String{} }
	local.Replace(testService("served", nil), testService("classless", without),
		testService("other", func(s *service) { s.Spec.Type = slim.MakeString(string(corev1.ServiceTypeNodePort)) }))
	c := newController(params{Cluster: cluster.DefaultConfig, Services: local, Metrics: newMetrics(metrics.Factory{}), Health: health.NewTree().Reporter("nodeipam")})
	if c.services, err = local.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	if keys := c.nodeChanged(stream.Change[node]{Kind: stream.Delete}); len(keys) > 0 {
		t.Errorf("%v before the initial state is complete", keys)
	}
	c.Synced(t.Context())
	if keys, want := c.nodeChanged(stream.Change[node]{Kind: stream.Delete}), []slim.Key{{Namespace: "shop", Name: "served"}}; !slices.Equal(keys, want) {
		t.Errorf("%v, want %v", keys, want)
	}
	c.Cluster.DefaultLBServiceIPAM = cluster.NodeIPAM
	if keys := c.nodeChanged(stream.Change[node]{Kind: stream.Delete}); len(keys) != 2 {
		t.Errorf("%v with the Services without a class", keys)
	}
}

// NIPAM-13: a node whose addresses are left out is named in health and once in the log, until it is corrected or gone.
func TestOddAddressesOfNodes(t *testing.T) {
	tree, log := health.NewTree(), &strings.Builder{}
	c := newController(params{Metrics: newMetrics(metrics.Factory{}), Health: tree.Reporter("nodeipam"), Log: slog.New(slog.NewTextHandler(log, nil))})
	is := func(kind stream.ChangeKind, name string, texts ...string) {
		c.nodeChanged(stream.Change[node]{Kind: kind, Key: slim.Key{Name: name}, Object: testNode(name, nil, texts...)})
	}
	degraded := func(want string) {
		t.Helper()
		got := ""
		for _, d := range tree.Degraded() {
			got += d.Message
		}
		if got != want {
			t.Errorf("health has %q, want %q", got, want)
		}
	}
	is(stream.Upsert, "a", "+203.0.113.1", "10.0.0.1", "fd00::1")
	degraded("")
	const text = `Node b: its status has 2 addresses at which no node is reached, or more than 8 of a family, and they are left out: ["127.0.0.1" "0.0.0.0"]`
	is(stream.Upsert, "b", "+127.0.0.1", "0.0.0.0", "10.0.0.2")
	is(stream.Upsert, "b", "+127.0.0.1", "0.0.0.0", "10.0.0.3")
	degraded(text)
	is(stream.Upsert, "c", "fe80::1")
	degraded(text + "; and 1 more")
	if lines := strings.Count(log.String(), "addresses of a node are left out"); lines != 2 {
		t.Errorf("%d lines: %s", lines, log)
	}
	is(stream.Delete, "b")
	is(stream.Upsert, "c", "10.0.0.4")
	degraded("")
}
