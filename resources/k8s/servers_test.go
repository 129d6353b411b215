// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/skep-operator/skep/resources/clustertest"
)

// two are front doors of one API server, and a door that knows both.
func two(t *testing.T) (a, b *clustertest.Proxy, d *guardedTransport) {
	t.Helper()
	cluster := clustertest.Shared(t)
	a, b = cluster.NewProxy(t), cluster.NewProxy(t)
	d = openTransport(t, func(c *Config) {
		c.K8sKubeconfigPath = a.Kubeconfig()
		c.K8sAPIServerURLs = []string{"https://" + a.Address(), "https://" + b.Address()}
	})
	if len(d.servers.urls) != 2 {
		t.Fatalf("servers: %v", d.servers.urls)
	}
	return a, b, d
}

func connected(ctx context.Context, c Client) bool {
	_, err := c.Get(ctx, Ref{Resource: configMaps, Namespace: "default", Name: "absent"})
	return apierrors.IsNotFound(err)
}

// K8S-5.
func TestAServerThatRefusesMakesWayForTheNextAndBack(t *testing.T) {
	a, b, d := two(t)
	c := d.client(t, "duty")
	if !connected(t.Context(), c) {
		t.Fatal("the first server does not answer")
	}
	a.Refuse(t)
	a.Cut(t)
	until(t, "an answer of the second", func() bool { return connected(t.Context(), c) })
	if n := len(b.Requests(t, 0)); n == 0 {
		t.Error("the second server got nothing")
	}
	a.Heal(t)
	b.Refuse(t)
	b.Cut(t)
	until(t, "an answer of the first again", func() bool { return connected(t.Context(), c) })
}

func TestManyFailuresAtOnceMoveOnOnce(t *testing.T) {
	_, _, d := two(t)
	first := d.servers.url()
	for range 5 {
		d.servers.failed(first)
	}
	if d.servers.url() != d.servers.urls[1] {
		t.Error("five failures at the first server did not lead to the second")
	}
}

// K8S-4 and K8S-5.
func TestTheHeartbeatLeavesAServerThatWentSilent(t *testing.T) {
	a, b, d := two(t)
	c := d.client(t, "duty")
	if !connected(t.Context(), c) {
		t.Fatal("the first server does not answer")
	}
	a.BlackHole(t)
	h := &heartbeat{transport: d, timeout: 300 * time.Millisecond}
	until(t, "the heartbeat notices", func() bool { return h.beat(t.Context()) != nil })
	if !connected(t.Context(), c) || len(b.Requests(t, 0)) == 0 {
		t.Error("the second server is not used")
	}
	patient := &heartbeat{transport: d, timeout: time.Minute}
	if err := patient.beat(t.Context()); err != nil {
		t.Errorf("after an answer: %v", err)
	}
}

// K8S-4.
func TestTheHeartbeatDialsAnew(t *testing.T) {
	cluster := clustertest.Shared(t)
	proxy := cluster.NewProxy(t)
	d := openTransport(t, through(proxy.Kubeconfig()))
	d.lead(t)
	t.Setenv(StrictCause, "")
	c := d.client(t, "duty")
	namespace := newNamespace(t, cluster)
	if _, err := c.Create(why(t), configMaps, newConfigMap(namespace, "x", nil)); err != nil || !connected(t.Context(), c) {
		t.Fatal(err)
	}
	if n := proxy.State(t).Connections; n != 2 {
		t.Fatalf("%d connections, want one for reads and one for the term's writes", n)
	}
	h := &heartbeat{transport: d, timeout: time.Minute}
	silent := func() { d.reads.succeeded.Store(time.Now().Add(-time.Hour).UnixNano()) }
	proxy.Answer(t, http.StatusTooManyRequests, clustertest.Match{PathPrefixes: []string{"/healthz"}})
	silent()
	if err := h.beat(t.Context()); err != nil {
		t.Errorf("being told to slow down is a sign of life: %v", err)
	}
	proxy.Heal(t)
	proxy.Answer(t, http.StatusInternalServerError, clustertest.Match{PathPrefixes: []string{"/healthz"}})
	silent()
	if h.beat(t.Context()) == nil {
		t.Error("a probe that is answered 500 is taken for a sign of life")
	}
	until(t, "all connections are closed, the term's too", func() bool { return proxy.State(t).Connections == 0 })
	tries := 0
	until(t, "the term goes on over a new connection", func() bool { // when the transport has noticed that the old one is closed
		tries++
		_, err := c.Create(why(t), configMaps, newConfigMap(namespace, fmt.Sprint("y-", tries), nil))
		return err == nil
	})
}

func TestTheLeaseLeavesAServerThatWentSilent(t *testing.T) {
	a, b, d := two(t)
	lead, err := newSession(d, newPermissions())
	if err != nil {
		t.Fatal(err)
	}
	leases, err := kubernetes.NewForConfig(lead.LeaseConfig())
	if err != nil {
		t.Fatal(err)
	}
	get := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, err := leases.CoordinationV1().Leases("default").Get(ctx, "absent", metav1.GetOptions{})
		return err
	}
	if err := get(time.Minute); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	a.BlackHole(t)
	if err := get(200 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the silent server: %v", err)
	}
	if err := get(8 * time.Second); !apierrors.IsNotFound(err) { // the connection's own pings begin after 10 s
		t.Errorf("the request after it: %v", err)
	}
	if n := len(b.Requests(t, 0)); n != 1 {
		t.Errorf("%d requests at the second server, want 1", n)
	}
}

func TestAnUnauthorizedAnswerMakesANewConnection(t *testing.T) {
	var arrived seen
	d := openTransport(t, func(c *Config) {
		c.K8sAPIServer = serve(t, func(w http.ResponseWriter, r *http.Request) {
			if arrived.note(r); len(arrived.all()) == 1 {
				w.WriteHeader(http.StatusUnauthorized)
			}
		})
	})
	if err := d.healthz(t.Context()); err == nil {
		t.Error("an answer of 401 passes for health")
	}
	if err := d.healthz(t.Context()); err != nil {
		t.Error(err)
	}
	if all := arrived.all(); all[0].RemoteAddr == all[1].RemoteAddr {
		t.Error("both went over one connection: what is in the certificate's file by now is not used")
	}
}
