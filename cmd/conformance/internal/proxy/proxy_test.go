// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package proxy

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
)

// serve serves what the operator writes for a model, with one backend for all Services.
func serve(t *testing.T, m envoy.Model, backend http.HandlerFunc) (address string) {
	t.Helper()
	to := start(t, backend)
	pair := httptest.NewUnstartedServer(nil)
	pair.StartTLS()
	pair.Close()
	return serveIn(t, m, World{
		Endpoints:   func(string) []string { return []string{to} },
		Certificate: func(string) (*tls.Certificate, error) { return &pair.TLS.Certificates[0], nil },
	})
}

// serveIn serves what the operator writes for a model.
func serveIn(t *testing.T, m envoy.Model, w World) (address string) {
	t.Helper()
	result, err := new(envoy.Translator).Translate(m, envoy.Options{Service: envoy.Name{Namespace: "ns", Name: "s"}, SecretsNamespace: "copies", FirstWins: true, Connections: envoy.Connections{Connect: 5 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	return serveSpec(t, result.Spec, "listener", w)
}

// serveSpec serves a listener of a spec.
func serveSpec(t *testing.T, spec v2.CiliumEnvoyConfigSpec, listener string, w World) (address string) {
	t.Helper()
	decoded, err := envoytest.Verify(spec)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(decoded, w)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen("127.0.0.1:0", listener, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l.socket.Addr().String()
}

// start starts a backend.
func start(t *testing.T, backend http.HandlerFunc) (address string) {
	s := httptest.NewServer(backend)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// L7S-3: the requests of a Service stay with the endpoints of their port.
func TestAServiceWithSeveralPorts(t *testing.T) {
	endpoints := map[string][]string{}
	for _, port := range []string{"80", "8080"} {
		endpoints["ns/s:"+port] = []string{start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, port) })}
	}
	s := envoy.Service{Name: envoy.Name{Namespace: "ns", Name: "s"}, Ports: []uint32{80, 8080}, Algorithm: envoy.RoundRobin}
	spec, err := s.Translate(envoy.Connections{Idle: time.Minute, Connect: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	address := serveSpec(t, spec, "ns/s", World{Endpoints: func(service string) []string { return endpoints[service] }})
	for host, want := range map[string]string{
		"s": "80", "s:80": "80", "s.ns.svc:8080": "8080", "[2001:db8::1]:8080": "8080", "s:30080": "80", "10.0.0.1": "80",
	} {
		if code, body, _ := get(t, address, host, "/"); code != http.StatusOK || body != want {
			t.Errorf("%s: %d by port %q, want %s", host, code, body, want)
		}
	}
}

func to(name string) []envoy.Backend {
	return []envoy.Backend{{Name: envoy.Name{Namespace: "ns", Name: name}, Port: "80"}}
}

func plainly(routes ...*envoy.Route) envoy.Model {
	return envoy.Model{HTTP: []envoy.Listener{{Port: 80, Routes: routes}}}
}

// echo answers with what it gets.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Old", "old")
	_, _ = io.WriteString(w, r.Method+" "+r.Host+" "+r.RequestURI+" "+strings.Join(r.Header.Values("X-A"), ","))
}

// get asks for a path of a host. It returns the status, the body and the headers.
func get(t *testing.T, address, host, path string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	r.Header.Set("X-A", "0")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header
}

func TestRoutes(t *testing.T) {
	prefix := "/new"
	address := serve(t, envoy.Model{HTTP: []envoy.Listener{{Port: 80, Named: []envoy.NamedRoutes{
		{Hostnames: []string{"*.a.com"}, Routes: []envoy.Route{
			{Path: envoy.Match{Kind: envoy.Exact, Value: "/x"}, Backends: to("b"), RequestHeaders: &envoy.HeaderEdit{
				Add: []envoy.Header{{Name: "X-A", Value: "2"}}, Set: []envoy.Header{{Name: "X-A", Value: "100%"}},
			}},
			{Path: envoy.Match{Kind: envoy.Prefix, Value: "/old"}, Backends: to("b"), Rewrite: &envoy.Rewrite{Host: "in", PrefixPath: &prefix}},
		}},
		{Hostnames: []string{"one.a.com"}, Routes: []envoy.Route{{Redirect: &envoy.Redirect{Scheme: "https", Code: 302, PrefixPath: &prefix}}}},
		{Hostnames: []string{"none"}, Routes: []envoy.Route{{}}},
	}}}}, echo)
	for _, test := range []struct {
		host, path string
		code       int
		want       string
	}{
		{"b.a.com", "/x", 200, "GET b.a.com /x 100%,2"},
		{"b.a.com:8080", "/x", 200, "GET b.a.com:8080 /x 100%,2"},
		{"b.a.com", "/old/a%2Fb?q=1", 200, "GET in /new/a%2Fb?q=1 0"},
		{"b.a.com", "/older", 404, ""},
		{"a.com", "/x", 404, ""},
		{"one.a.com", "/x?q", 302, "https://one.a.com:443/new/x?q"},
		{"none", "/", 500, ""},
	} {
		code, body, header := get(t, address, test.host, test.path)
		if code == 302 {
			body = header.Get("Location")
		}
		if code != test.code || body != test.want {
			t.Errorf("%s%s: %d %q, want %d %q", test.host, test.path, code, body, test.code, test.want)
		}
	}
}

func TestRetriesAndTimeouts(t *testing.T) {
	var attempts atomic.Int32
	blocked := make(chan struct{})
	address := serve(t, plainly(
		&envoy.Route{Path: envoy.Match{Kind: envoy.Exact, Value: "/retry"}, Backends: to("b"), Retry: &envoy.Retry{Attempts: new(uint32(2)), Codes: []uint32{503}, Backoff: time.Millisecond}},
		&envoy.Route{Path: envoy.Match{Kind: envoy.Exact, Value: "/slow"}, Backends: to("b"), RequestTimeout: new(50 * time.Millisecond)},
	), func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/slow":
			<-blocked
		case attempts.Add(1) == 1:
			panic(http.ErrAbortHandler) // the connection breaks
		case attempts.Load() == 2:
			w.WriteHeader(503)
		}
	})
	if code, _, _ := get(t, address, "h", "/retry"); code != 200 || attempts.Load() != 3 {
		t.Errorf("%d after %d attempts", code, attempts.Load())
	}
	if code, _, _ := get(t, address, "h", "/slow"); code != 504 {
		t.Errorf("%d, want 504", code)
	}
	close(blocked)
}

// Connections are closed for which there is no filter chain, or one without filters.
func TestServerNames(t *testing.T) {
	address := serve(t, envoy.Model{Passthrough: []envoy.Passthrough{
		{Hostnames: []string{"*.example.com"}, Port: 443, Backends: to("b"), Secrets: []envoy.Name{{Namespace: "ns", Name: "c"}}},
		{Hostnames: []string{"closed.example.org"}, Port: 443},
	}}, echo)
	for name, want := range map[string]bool{"a.example.com": true, "closed.example.org": false, "example.com": false, "other.org": false} {
		c, err := tls.Dial("tcp", address, &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_, err = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
			text, err2 := io.ReadAll(c)
			if err != nil || err2 != nil || !strings.HasPrefix(string(text), "HTTP/1.0 200") {
				t.Errorf("%s: %q %v %v", name, text, err, err2)
			}
			_ = c.Close()
		}
	}
}

// A field that is not served is an error.
func TestUnknownFields(t *testing.T) {
	result, err := new(envoy.Translator).Translate(plainly(&envoy.Route{Backends: to("b")}), envoy.Options{Service: envoy.Name{Namespace: "ns", Name: "s"}, XFFNumTrustedHops: 2})
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := envoytest.Verify(result.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(decoded, World{}); err == nil || !strings.Contains(err.Error(), "xff_num_trusted_hops") {
		t.Errorf("%v", err)
	}
}
