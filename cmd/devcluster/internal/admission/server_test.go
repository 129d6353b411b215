// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/cmd/devcluster/internal/pki"
	"github.com/skep-operator/skep/resources/clustertest/control"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

// TestStaysCheap keeps the package's tests from compiling Kubernetes.
func TestStaysCheap(t *testing.T) {
	output, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.Lines(string(output)) {
		if strings.HasPrefix(name, "k8s.io/kubernetes/") {
			t.Errorf("the package depends on %s", strings.TrimSpace(name))
		}
	}
}

// asker asks a server as an API server does.
type asker struct {
	t      *testing.T
	server *Server
	client *http.Client
}

func newAsker(t *testing.T) *asker {
	authority, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Server("admission")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	server, err := Serve(cert, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool()}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	return &asker{t, server, &http.Client{Transport: transport}}
}

func (a *asker) rule(ask control.Admission) control.Admission {
	a.t.Helper()
	added, err := a.server.add(ask)
	if err != nil {
		a.t.Fatal(err)
	}
	return added
}

func (a *asker) tryAsk(ctx context.Context, id string, request admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	request.UID = "asked"
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: &request})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.server.url(id), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(resp.Body).Decode(&review); err != nil {
		return nil, err
	}
	if review.Response == nil || review.Response.UID != "asked" || review.Request != nil {
		return nil, fmt.Errorf("answered %+v", review)
	}
	return review.Response, nil
}

func (a *asker) ask(id string, request admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	a.t.Helper()
	response, err := a.tryAsk(a.t.Context(), id, request)
	if err != nil {
		a.t.Fatal(err)
	}
	return response
}

var update = admissionv1.AdmissionRequest{
	Name: "n", Namespace: "ns", UserInfo: authenticationv1.UserInfo{Username: "u"},
	Object: runtime.RawExtension{Raw: []byte(`{"spec":{"a":1}}`)},
}

func TestRejectsEveryNth(t *testing.T) {
	a := newAsker(t)
	a.rule(control.Admission{ID: "r", Every: 3, Reject: &control.Reject{Codes: []int{418, 419}, Message: "no tea", Reason: "Teapot"}})
	var rejected []int
	for i := range 7 {
		response := a.ask("r", update)
		if response.Allowed {
			continue
		}
		if r := response.Result; int(r.Code) != 418+len(rejected)%2 || r.Message != "no tea" || r.Reason != "Teapot" || r.Status != "Failure" {
			t.Errorf("rejected with %+v", r)
		}
		rejected = append(rejected, i)
	}
	if fmt.Sprint(rejected) != "[0 3 6]" || a.server.Rules()[0].Hits != 3 {
		t.Errorf("rejected were %v, %d hits", rejected, a.server.Rules()[0].Hits)
	}
}

func TestMatches(t *testing.T) {
	a := newAsker(t)
	for i, test := range []struct {
		match control.AdmissionMatch
		want  bool
	}{
		{control.AdmissionMatch{}, true},
		{control.AdmissionMatch{Names: []string{"m", "n"}, Namespaces: []string{"ns"}, Users: []string{"u"}}, true},
		{control.AdmissionMatch{Names: []string{"m"}}, false},
		{control.AdmissionMatch{Namespaces: []string{"m"}}, false},
		{control.AdmissionMatch{Users: []string{"m"}}, false},
	} {
		id := a.rule(control.Admission{Match: test.match, Reject: &control.Reject{}}).ID
		if rejects := !a.ask(id, update).Allowed; rejects != test.want {
			t.Errorf("%d: %+v rejects: %t", i, test.match, rejects)
		}
	}
	probe := update
	probe.Name = probeName
	if !a.ask("webhook-1", probe).Allowed {
		t.Error("a probe is no occasion")
	}
	if err := a.server.remove("webhook-1"); err != nil || !a.ask("webhook-1", update).Allowed {
		t.Errorf("a rule that is gone rejects (%v)", err)
	}
}

func TestRewrites(t *testing.T) {
	a := newAsker(t)
	a.rule(control.Admission{ID: "drop", Drop: []string{"/spec/a"}})
	response := a.ask("drop", update)
	if !response.Allowed || response.PatchType == nil || *response.PatchType != admissionv1.PatchTypeJSONPatch || !strings.Contains(string(response.Patch), `"remove"`) {
		t.Errorf("answered %+v", response)
	}
	deletion := update
	deletion.Object = runtime.RawExtension{}
	if response := a.ask("drop", deletion); !response.Allowed || response.Patch != nil {
		t.Errorf("a delete is answered %+v", response)
	}
}

func TestHangs(t *testing.T) {
	a := newAsker(t)
	a.rule(control.Admission{ID: "brief", Hang: &control.Hang{For: time.Millisecond}})
	if !a.ask("brief", update).Allowed {
		t.Error("what hung is not allowed")
	}
	a.rule(control.Admission{ID: "long", Hang: &control.Hang{For: -1}})
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() {
		_, err := a.tryAsk(ctx, "long", update)
		gaveUp <- err
	}()
	waittest.Until(t, "one hangs", func() bool { return a.server.Rules()[1].Hits == 1 })
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("it does not hang: %v", err)
	}
	answered := make(chan error)
	go func() {
		_, err := a.tryAsk(context.Background(), "long", update)
		answered <- err
	}()
	waittest.Until(t, "another one hangs", func() bool { return a.server.Rules()[1].Hits == 2 })
	if err := a.server.remove("long"); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("after the rule: %v", err)
	}
}
