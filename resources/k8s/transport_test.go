// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	dto "github.com/prometheus/client_model/go"

	"github.com/skep-operator/skep/resources/internal/fair"
	"github.com/skep-operator/skep/runtime/cell"

	"github.com/skep-operator/skep/resources/leading"
)

// seen keeps what arrives at a server.
type seen struct {
	mu       sync.Mutex
	requests []*http.Request
}

func (s *seen) note(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
}

func (s *seen) all() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func answer(w http.ResponseWriter, obj any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(obj)
}

// K8S-2, and the module's name as an addition.
func TestAnyClientCarriesTheModuleAndProtobufForCoreTypes(t *testing.T) {
	var arrived seen
	d := openTransport(t, func(c *Config) {
		c.K8sAPIServer = serve(t, func(w http.ResponseWriter, r *http.Request) {
			arrived.note(r)
			answer(w, corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}})
		})
	})
	c := d.client(t, "ipam.clusterpool")
	typed, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	meta, err := metadata.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = meta.Resource(configMaps).List(t.Context(), metav1.ListOptions{})
	raw, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Resource(configMaps).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range arrived.all() {
		if got, want := r.Header.Get("User-Agent"), "skep/1.2.3 (ipam.clusterpool)"; got != want {
			t.Errorf("%s: User-Agent %q, want %q", r.URL, got, want)
		}
	}
	if n := len(arrived.all()); n != 3 {
		t.Fatalf("%d requests arrived, want 3", n)
	}
	if accept := arrived.all()[0].Header.Get("Accept"); !strings.HasPrefix(accept, "application/vnd.kubernetes.protobuf") {
		t.Errorf("a core type is asked for as %q, want protobuf", accept)
	}
}

func TestAProcessModuleReadsAndReviewsButNeverWrites(t *testing.T) {
	var arrived seen
	d := openTransport(t, func(c *Config) {
		// Behind a path of its own, as some providers have it.
		c.K8sAPIServer = serve(t, func(w http.ResponseWriter, r *http.Request) {
			arrived.note(r)
			answer(w, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}})
		}) + "/clusters/one"
	})
	c := d.client(t, "health")
	typed, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = typed.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{}, metav1.CreateOptions{})
	_ = d.healthz(t.Context())
	for i, want := range []string{"/clusters/one/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", "/clusters/one/healthz"} {
		if len(arrived.all()) <= i || arrived.all()[i].URL.Path != want {
			t.Fatalf("request %d is not for %s: %v", i, want, arrived.all())
		}
	}
	d.lead(t) // a module that is rebuilt during a term still lives outside it
	rebuilt, err := newModuleClient(cell.ModuleInfo{ID: "health"}, clientParams{Transport: d, Permissions: newPermissions()})
	if err != nil {
		t.Fatal(err)
	}
	writes := map[string]func() error{
		"create, by a module rebuilt": func() error {
			_, err := rebuilt.Create(why(t), configMaps, newConfigMap("default", "x", nil))
			return err
		},
		"create": func() error { _, err := c.Create(why(t), configMaps, newConfigMap("default", "x", nil)); return err },
		"delete": func() error {
			return c.Delete(why(t), Ref{Resource: configMaps, Namespace: "default", Name: "x"}, Preconditions{UID: "1"})
		},
		"patch, by another client": func() error {
			_, err := typed.CoreV1().Nodes().Patch(why(t), "n", "application/merge-patch+json", []byte("{}"), metav1.PatchOptions{})
			return err
		},
	}
	for name, write := range writes {
		if err := write(); !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s outside a term: %v, want ErrReadOnly", name, err)
		}
	}
	if n := len(arrived.all()); n != 2 {
		t.Errorf("%d requests arrived, want the two reads only", n)
	}
}

func TestAWriteWithoutACauseIsCountedAndFailsWhereTestsAreStrict(t *testing.T) {
	var arrived seen
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		arrived.note(r)
		cm := newConfigMap("a", "x", nil)
		cm.TypeMeta, cm.ResourceVersion = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, "1"
		answer(w, cm)
	})
	for _, strict := range []string{"", "1"} {
		t.Setenv(StrictCause, strict)
		d := openTransport(t, func(c *Config) { c.K8sAPIServer = server })
		d.lead(t)
		c := d.client(t, "duty")
		if _, err := c.Create(why(t), configMaps, newConfigMap("a", "x", nil)); err != nil {
			t.Errorf("strict %q: a write with a cause: %v", strict, err)
		}
		if n := counted(t, d, "duty"); n != 0 {
			t.Errorf("strict %q: %v writes without a cause are counted, want none", strict, n)
		}
		_, err := c.Create(t.Context(), configMaps, newConfigMap("a", "x", nil))
		if errors.Is(err, ErrNoCause) != (strict != "") {
			t.Errorf("strict %q: a write without a cause: %v", strict, err)
		}
		if n := counted(t, d, "duty"); n != 1 {
			t.Errorf("strict %q: %v writes without a cause are counted, want 1", strict, n)
		}
	}
	if n := len(arrived.all()); n != 3 {
		t.Errorf("%d writes arrived, want 3: all but the one refused", n)
	}
}

func counted(t *testing.T, d *guardedTransport, module string) float64 {
	t.Helper()
	var m dto.Metric
	if err := d.metrics.Uncaused.WithLabelValues(module).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// closeNoted is a body that notes that it was closed.
type closeNoted struct {
	io.Reader
	closed bool
}

func (c *closeNoted) Close() error { c.closed = true; return nil }

func TestARefusedRequestHasItsBodyClosed(t *testing.T) {
	t.Setenv(StrictCause, "1")
	d := openTransport(t, func(c *Config) { c.K8sAPIServer, c.QPS, c.Burst = "127.0.0.1:1", 1, 1 })
	fence := d.lead(t)
	term := &moduleTransport{guardedTransport: d, module: "duty", writer: d.term.Load()}
	process := &moduleTransport{guardedTransport: d, module: "health"}
	canceled, cancel := context.WithCancel(why(t))
	cancel()
	send := func(way http.RoundTripper, ctx context.Context, want error) {
		t.Helper()
		body := &closeNoted{Reader: strings.NewReader("{}")}
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://127.0.0.1:1/api/v1/nodes/n", body)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := way.RoundTrip(req); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		if !body.closed {
			t.Errorf("the body is open after %v", want)
		}
	}
	d.limiter = fair.New(fair.Limits{})
	send(process, why(t), ErrReadOnly)
	send(term, t.Context(), ErrNoCause)
	fence.Close()
	send(term, why(t), leading.ErrFenced)
	d.limiter = fair.New(fair.Limits{Rate: 0.001})
	_ = d.limiter.Wait(t.Context(), "other")
	send(term, canceled, context.Canceled)
}

func TestCauseReadsAsASentence(t *testing.T) {
	parent := &Cause{Rule: "crds register"}
	c := &Cause{Rule: "ipam.clusterpool allocate", Parent: parent, Triggers: []Trigger{
		{Kind: "CiliumNode", Name: "n1", ResourceVersion: "7"}, {Kind: "Pod", Namespace: "a", Name: "p"},
	}}
	want := "ipam.clusterpool allocate, set off by CiliumNode n1 at 7, Pod a/p, because of crds register"
	if got := c.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if CauseOf(WithCause(t.Context(), c)) != c || CauseOf(t.Context()) != nil {
		t.Error("the cause is not that of the context")
	}
}
