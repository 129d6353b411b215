// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package faultproxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/cmd/devcluster/internal/pki"
	"github.com/skep-operator/skep/resources/clustertest/control"
	"github.com/skep-operator/skep/runtime/waittest"
)

// rig is a TLS server that answers like an API server in outline, a proxy in
// front of it, and a client.
type rig struct {
	t      *testing.T
	proxy  *Proxy
	client *http.Client
	server *httptest.Server
	served atomic.Int64
	// events is what the server's watches send, by path.
	events map[string]chan string
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, events: map[string]chan string{
		"/api/v1/pods": make(chan string), "/api/v1/nodes": make(chan string),
	}}
	r.start(r.serve)
	return r
}

// start runs the server, with this handler, the proxy and the client.
func (r *rig) start(handler http.HandlerFunc) {
	t := r.t
	authority, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	serverCert := mustTLS(t)(authority.Server("server"))

	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{serverCert},
		ClientAuth:   tls.VerifyClientCertIfGiven, ClientCAs: authority.Pool(),
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	r.server = server
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	r.proxy, err = NewHTTP(Config{ID: "test", Backend: control.BackendAPIServer, Log: quiet}, Backend{
		URL: target, RootCAs: authority.Pool(), ClientCAs: authority.Pool(),
		ServerCert: serverCert, FrontProxy: mustTLS(t)(authority.Client("front-proxy")),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.proxy.Close)

	transport := &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{
			RootCAs:      authority.Pool(),
			Certificates: []tls.Certificate{mustTLS(t)(authority.Client("alice", "dev", "ops"))},
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	r.client = &http.Client{Transport: transport}
}

func mustTLS(t *testing.T) func(pki.Pair, error) tls.Certificate {
	return func(p pki.Pair, err error) tls.Certificate {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		cert, err := p.TLS()
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
}

// serve says who asked, or streams events to a watch.
func (r *rig) serve(w http.ResponseWriter, req *http.Request) {
	r.served.Add(1)
	if req.URL.Path == "/hang" {
		<-req.Context().Done()
		return
	}
	if req.URL.Path == "/refuse" { // without a look at what is asked
		http.Error(w, "refused", http.StatusForbidden)
		return
	}
	if req.URL.Query().Get("watch") == "" {
		body, _ := io.ReadAll(req.Body)
		fmt.Fprintf(w, "%s %s peers=%d user=%s groups=%v token=%s body=%s audit=%v", req.Proto, req.URL.Path,
			len(req.TLS.PeerCertificates), req.Header.Get("X-Remote-User"), req.Header["X-Remote-Group"],
			req.Header.Get("Authorization"), body, req.Header[http.CanonicalHeaderKey(control.AuditIDHeader)])
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		select {
		case event := <-r.events[req.URL.Path]:
			fmt.Fprintf(w, "%q\n", event)
			w.(http.Flusher).Flush()
		case <-req.Context().Done():
			return
		}
	}
}

func (r *rig) request(method, path string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(r.t.Context(), method, "https://"+r.proxy.Address()+path, strings.NewReader("sent"))
	if err != nil {
		r.t.Fatal(err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	return r.client.Do(req)
}

func (r *rig) get(path string) (int, string) {
	r.t.Helper()
	return r.getWith(path, nil)
}

func (r *rig) getWith(path string, header http.Header) (int, string) {
	r.t.Helper()
	resp, err := r.request(http.MethodGet, path, header)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (r *rig) rule(ask control.Rule) control.Rule {
	r.t.Helper()
	added, err := r.proxy.AddRule(ask)
	if err != nil {
		r.t.Fatal(err)
	}
	return added
}

// until waits for a state.
func (r *rig) until(what string, reached func() bool) {
	r.t.Helper()
	waittest.Until(r.t, what, reached)
}

// A refusal that comes before the request is read reaches the client, however large
// the request and however many there are.
func TestRefusalsOfWhatIsNotRead(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	refused := func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, "https://"+r.proxy.Address()+"/refuse",
			bytes.NewReader(make([]byte, 1<<20)))
		if err != nil {
			return err
		}
		resp, err := r.client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusForbidden {
			return fmt.Errorf("answered %s", resp.Status)
		}
		return nil
	}
	var g errgroup.Group
	for range 16 {
		g.Go(func() error {
			for range 10 {
				if err := refused(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

func TestForwardsOverHTTP2AndVouches(t *testing.T) {
	r := newRig(t)
	_, body := r.get("/api/v1/pods")
	for _, want := range []string{"HTTP/2.0 /api/v1/pods", "user=alice groups=[dev ops]", "token= ", "body=sent"} {
		if !strings.Contains(body, want) {
			t.Errorf("the server saw %q; want it to contain %q", body, want)
		}
	}
	if !strings.Contains(body, "peers=1") {
		t.Error("the proxy vouched for a user without showing its own certificate")
	}
}

// The audit log is told when a request was sent, whatever the client has it say.
func TestAuditIDTellsWhenARequestWasSent(t *testing.T) {
	r := newRig(t)
	before := time.Now()
	_, body := r.getWith("/api/v1/pods", http.Header{http.CanonicalHeaderKey(control.AuditIDHeader): {"a", "b"}})
	_, told, _ := strings.Cut(body, "audit=[")
	sent, ok := control.Sent(strings.TrimSuffix(told, "]"))
	if !ok || sent.Before(before) || sent.After(time.Now()) {
		t.Errorf("it is told %q", told)
	}
	for _, other := range []string{"", "sent-", "sent-x-y", "7c9e6679-7425-40de-944b-e07fc1f90ae7"} {
		if _, ok := control.Sent(other); ok {
			t.Errorf("%q tells when it was sent", other)
		}
	}
}

func TestTokenPassesAndNobodyVouchesForThemselves(t *testing.T) {
	r := newRig(t)
	_, body := r.getWith("/api/v1/pods", http.Header{
		"Authorization": {"Bearer x"}, "X-Remote-User": {"root"}, "X-Remote-Group": {"system:masters"},
		"X-Remote-Extra-Scopes": {"all"},
	})
	if !strings.Contains(body, "peers=0 user= groups=[] token=Bearer x") {
		t.Errorf("the server saw %q", body)
	}
}

func TestStatusIsAProperAnswer(t *testing.T) {
	r := newRig(t)
	r.rule(control.Rule{
		Match:  control.Match{Resources: []string{"pods"}},
		Status: &control.Status{Code: 429, RetryAfter: 1500 * time.Millisecond},
		Times:  1,
	})
	resp, err := r.request(http.MethodGet, "/api/v1/namespaces/a/pods/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var status metav1.Status
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "2" || status.Kind != "Status" ||
		status.Code != 429 || status.Reason != metav1.StatusReasonTooManyRequests ||
		status.Details == nil || status.Details.RetryAfterSeconds != 2 || status.Details.Name != "x" || status.Details.Kind != "pods" {
		t.Errorf("answer %d, Retry-After %q, %+v, details %+v", resp.StatusCode, resp.Header.Get("Retry-After"), status, status.Details)
	}
	if n := r.served.Load(); n != 0 {
		t.Errorf("the server saw %d requests", n)
	}
	if code, _ := r.get("/api/v1/namespaces/a/pods/x"); code != 200 {
		t.Errorf("the second request got %d, the rule fires once", code)
	}
}

func TestStatusReasons(t *testing.T) {
	for _, tc := range []struct {
		method string
		code   int
		want   metav1.StatusReason
	}{
		{"GET", 403, metav1.StatusReasonForbidden},
		{"PUT", 409, metav1.StatusReasonConflict},
		{"POST", 409, metav1.StatusReasonAlreadyExists},
		{"GET", 500, metav1.StatusReasonInternalError},
		{"GET", 503, metav1.StatusReasonServiceUnavailable},
		{"GET", 504, metav1.StatusReasonTimeout},
	} {
		status := statusFor(tc.method, facts{}, control.Status{Code: tc.code}, 0)
		if status.Reason != tc.want {
			t.Errorf("%s %d has reason %s, want %s", tc.method, tc.code, status.Reason, tc.want)
		}
	}
}

func TestDelayHoldsUntilTheRuleGoes(t *testing.T) {
	r := newRig(t)
	rule := r.rule(control.Rule{Delay: &control.Delay{For: -1}})
	answered := make(chan int)
	go func() {
		code, _ := r.get("/api/v1/pods")
		answered <- code
	}()
	r.until("the request at the proxy", func() bool { return len(r.proxy.Requests(0)) == 1 })
	if n := r.served.Load(); n != 0 {
		t.Errorf("the server saw the request while it was held")
	}
	if err := r.proxy.RemoveRule(rule.ID); err != nil {
		t.Fatal(err)
	}
	if code := <-answered; code != 200 {
		t.Errorf("answer %d", code)
	}
}

func TestLoseAnswer(t *testing.T) {
	for name, connection := range map[string]bool{"stream": false, "connection": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.get("/warm")
			r.rule(control.Rule{
				Match:      control.Match{Verbs: []string{"create"}},
				LoseAnswer: &control.LoseAnswer{Connection: connection}, Times: 1,
			})
			resp, err := r.request(http.MethodPost, "/api/v1/namespaces/a/pods", nil)
			if err == nil {
				resp.Body.Close()
				t.Fatalf("the client got an answer: %s", resp.Status)
			}
			if n := r.served.Load(); n != 2 {
				t.Errorf("the server saw %d requests, want the warm-up and the lost one", n)
			}
			lost := r.proxy.Requests(1)[0]
			if lost.Status != -1 || !lost.Done || len(lost.Rules) != 1 || !lost.Mutates() {
				t.Errorf("the lost request was recorded as %+v", lost)
			}
			r.get("/after")
			want := int64(1)
			if connection {
				want = 2
			}
			if got := r.proxy.Info().Accepted; got != want {
				t.Errorf("%d connections were accepted, want %d", got, want)
			}
		})
	}
}

func TestClientThatGivesUpKeepsItsConnection(t *testing.T) {
	r := newRig(t)
	r.get("/warm")
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.proxy.Address()+"/hang", nil)
	if err != nil {
		t.Fatal(err)
	}
	gaveUp := make(chan error)
	go func() {
		_, err := r.client.Do(req)
		gaveUp <- err
	}()
	r.until("the request at the server", func() bool { return r.served.Load() == 2 })
	cancel()
	if err := <-gaveUp; err == nil {
		t.Fatal("a request that hangs was answered")
	}
	r.until("the end of the request at the proxy", func() bool { return r.proxy.Requests(1)[0].Done })
	r.get("/after")
	if n := r.proxy.Info().Accepted; n != 1 {
		t.Errorf("%d connections were accepted, want the first to live on", n)
	}
}

func TestServerAwayIsAReset(t *testing.T) {
	r := newRig(t)
	r.get("/warm")
	r.server.Close()
	resp, err := r.request(http.MethodGet, "/api/v1/pods", nil)
	if err == nil {
		resp.Body.Close()
		t.Fatalf("the client got %s from a server that is away", resp.Status)
	}
}

func TestRequestsAreRecorded(t *testing.T) {
	r := newRig(t)
	r.rule(control.Rule{ID: "no", Match: control.Match{Names: []string{"y"}}, Status: &control.Status{Code: 503}})
	r.getWith("/apis/cilium.io/v2/ciliumnodes/x?a=b", http.Header{"User-Agent": {"test"}})
	r.get("/api/v1/namespaces/n/pods/y/status")

	got := r.proxy.Requests(0)
	for i := range got {
		if got[i].Received.IsZero() {
			t.Errorf("no time of arrival in %+v", got[i])
		}
		got[i].Received, got[i].Answered = time.Time{}, time.Time{}
	}
	want := []control.Request{
		{Seq: 1, Method: "GET", Path: "/apis/cilium.io/v2/ciliumnodes/x?a=b", UserAgent: "test", Verb: "get",
			Group: "cilium.io", Resource: "ciliumnodes", Name: "x", Status: 200, Done: true},
		{Seq: 2, Method: "GET", Path: "/api/v1/namespaces/n/pods/y/status", UserAgent: "Go-http-client/2.0", Verb: "get",
			Resource: "pods", Subresource: "status", Namespace: "n", Name: "y", Status: 503, Done: true, Rules: []string{"no"}},
	}
	gotJSON, _ := json.MarshalIndent(got, "", " ")
	wantJSON, _ := json.MarshalIndent(want, "", " ")
	if string(gotJSON) != string(wantJSON) {
		t.Errorf("recorded\n%s\nwant\n%s", gotJSON, wantJSON)
	}
	if later := r.proxy.Requests(1); len(later) != 1 || later[0].Seq != 2 {
		t.Errorf("after 1: %+v", later)
	}
}

func TestRingForgetsTheOldest(t *testing.T) {
	ring := newRing()
	req := httptest.NewRequest("GET", "/", nil)
	first := ring.add(req, facts{})
	for range remembered + 9 {
		ring.add(req, facts{})
	}
	first.answered(500) // of a request that is forgotten
	got := ring.after(0)
	if len(got) != remembered || got[0].Seq != 11 || got[len(got)-1].Seq != remembered+10 {
		t.Fatalf("%d requests from %d to %d", len(got), got[0].Seq, got[len(got)-1].Seq)
	}
	for _, r := range got {
		if r.Status != 0 {
			t.Fatalf("a forgotten request's answer was written to request %d", r.Seq)
		}
	}
	if tail := ring.after(remembered + 9); len(tail) != 1 || tail[0].Seq != remembered+10 {
		t.Fatalf("tail is %+v", tail)
	}
}

// watch opens a watch and returns a function that reads its next event.
func (r *rig) watch(path string) (next func() (string, error)) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.proxy.Address()+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		cancel()
		resp.Body.Close()
	})
	lines := bufio.NewReader(resp.Body)
	return func() (string, error) {
		line, err := lines.ReadString('\n')
		return strings.Trim(line, "\"\n"), err
	}
}

func TestWatchFlowsEventByEvent(t *testing.T) {
	r := newRig(t)
	next := r.watch("/api/v1/pods?watch=1")
	for _, want := range []string{"a", "b", "c"} {
		r.events["/api/v1/pods"] <- want
		if got, err := next(); got != want || err != nil {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	}
}

func TestCutWatchesNow(t *testing.T) {
	for name, tc := range map[string]struct {
		how  control.CutWatch
		want string
	}{
		"clean":   {control.CutWatch{}, "EOF"},
		"abrupt":  {control.CutWatch{Abrupt: true}, "INTERNAL_ERROR"},
		"expired": {control.CutWatch{Expire: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			next := r.watch("/api/v1/pods?watch=1")
			other := r.watch("/api/v1/nodes?watch=1")
			n, err := r.proxy.CutWatches(control.CutWatches{Match: pods, How: tc.how})
			if n != 1 || err != nil {
				t.Fatalf("cut %d watches, %v", n, err)
			}
			line, err := next()
			if tc.how.Expire {
				if !strings.Contains(line, `"code":410`) || err != nil {
					t.Fatalf("got %q, %v; want an event that says 410", line, err)
				}
				if _, err = next(); err != io.EOF {
					t.Fatalf("behind it comes %v, want the end", err)
				}
			} else if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("ended with %v, want %s", err, tc.want)
			}
			r.events["/api/v1/nodes"] <- "still here"
			if got, err := other(); got != "still here" || err != nil {
				t.Fatalf("the other watch got %q, %v", got, err)
			}
		})
	}
}

func TestHoldReachesWatchesThatAreOpen(t *testing.T) {
	r := newRig(t)
	next := r.watch("/api/v1/pods?watch=1")
	rule := r.rule(control.Rule{Match: pods, HoldWatch: &control.HoldWatch{}})
	r.events["/api/v1/pods"] <- "a"
	r.events["/api/v1/pods"] <- "b"
	r.until("the rule to hold the watch", func() bool { return r.proxy.Rules()[0].Hits == 1 })
	if err := r.proxy.RemoveRule(rule.ID); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a", "b"} {
		if got, err := next(); got != want || err != nil {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	}
}
