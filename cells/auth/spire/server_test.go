// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/spire/spiretest"
)

// world is the CiliumIdentities of a real API server, and a simulated SPIRE.
type world struct {
	*operatortest.Env
	spire *spiretest.Server
}

func newWorld(t *testing.T, s *spiretest.Server) *world {
	t.Helper()
	w := &world{operatortest.NewEnv(t, clustertest.Shared(t), "CiliumIdentity"), s}
	w.Clear(v2.CiliumIdentityResource)
	return w
}

func (w *world) create(names ...string) {
	w.T.Helper()
	for _, name := range names {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "cilium.io/v2", "kind": "CiliumIdentity", "metadata": map[string]any{"name": name},
			"security-labels": map[string]any{"k8s:app": "web-" + name},
		}}
		if _, err := w.Dynamic.Resource(v2.CiliumIdentityResource).Create(w.T.Context(), u, metav1.CreateOptions{}); err != nil {
			w.T.Fatal(err)
		}
	}
}

func (w *world) delete(name string) {
	w.T.Helper()
	if err := w.Dynamic.Resource(v2.CiliumIdentityResource).Delete(w.T.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) wantEntries(names ...string) {
	w.T.Helper()
	operatortest.Eventually(w.T, fmt.Sprint("the entries are those of ", names), func() bool {
		entries := w.spire.Entries()
		return len(entries) == len(names) && !slices.ContainsFunc(names, func(n string) bool {
			_, ok := entries["/identity/"+n]
			return !ok
		})
	})
}

// least is the role that the duty asks for, and what any operator does.
var least = []rbacv1.PolicyRule{
	{APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumidentities"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get"}},
	{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
}

// SPIRE-7, SPIRE-10 and SPIRE-12; SPIRE-E2, SPIRE-E4, SPIRE-E6 and SPIRE-E8, with the least permissions, and a restart that
// changes nothing, neither at SPIRE nor at the API server.
func TestOnARealAPIServer(t *testing.T) {
	s := spiretest.Prepare(t, domain)
	for _, n := range []int{1000, 1001} {
		s.Put(s.Own(n))
	}
	w := newWorld(t, s)
	w.create("1000", "17947", "web")
	kubeconfig := w.As("spire", least...)
	o := operatortest.Start(t, withSPIRE, kubeconfig, s.Args("--mesh-auth-mutual-enabled")...)
	operatortest.Eventually(t, "health reports the agent", func() bool { return strings.Contains(o.Degraded("auth.spire"), "unable to connect to SPIRE server") })
	s.Agent.Start()
	w.wantEntries("1000", "17947")
	w.delete("17947")
	w.wantEntries("1000")
	w.create("17947")
	w.wantEntries("1000", "17947")
	operatortest.Eventually(t, "it is healthy", func() bool { return o.Degraded("") == "" })
	w.CheckHealthy(o)
	operatortest.Eventually(t, "metrics", func() bool {
		return o.Metric("spire_entries", "present") == 2 && o.Metric("spire_entries", "desired") == 2 &&
			o.Metric("spire_ignored_identities") == 1 && o.Metric("spire_connected") == 1
	})
	changes, lists := s.Changes(), s.Calls()["ListEntries"]
	o.ReenterTerm()
	operatortest.Eventually(t, "all are compared again", func() bool { return s.Calls()["ListEntries"] > lists })
	operatortest.Eventually(t, "all are present", func() bool { return o.Metric("spire_entries", "present") == 2 })
	w.delete("1000")
	w.wantEntries("17947")
	if n := s.Changes() - changes; n != 1 {
		t.Errorf("%d changes after a restart, and a deletion", n)
	}
	o.Stop()
	for _, r := range w.Proxy.Requests(t, 0) {
		if strings.Contains(r.UserAgent, "spire") && r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" {
			t.Errorf("%s %s", r.Verb, r.Path)
		}
	}
}

// clusterIPs is a client that knows the cluster IPs of Services by namespace/name.
type clusterIPs struct {
	k8s.Client
	mu    sync.Mutex
	known map[string]string
}

func (c *clusterIPs) set(service, ip string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[service] = ip
}

func (c *clusterIPs) Get(_ context.Context, ref k8s.Ref) (*unstructured.Unstructured, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ip, ok := c.known[ref.Namespace+"/"+ref.Name]
	if !ok {
		return nil, errors.New(http.StatusText(http.StatusNotFound))
	}
	return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"clusterIP": ip}}}, nil
}

// SPIRE-11: a Service that is recreated with another cluster IP is found again.
func TestRecreatedService(t *testing.T) {
	s := spiretest.Start(t, domain)
	_, port, err := net.SplitHostPort(s.Address())
	if err != nil {
		t.Fatal(err)
	}
	client := &clusterIPs{known: map[string]string{"spire/spire-server": "127.0.0.1"}}
	d := newDuty(t, s)
	d.client = client
	d.config.MeshAuthSPIREServerAddress = "spire-server.spire.svc:" + port
	d.create("300")
	d.lead()
	d.wantEntries("300")
	s.Stop()
	client.set("spire/spire-server", "127.0.0.2")
	s.Listen("127.0.0.2:" + port)
	d.create("301")
	d.wantEntries("300", "301")
	d.eventually("it is healthy", func() bool { return d.degraded() == "" })
}
