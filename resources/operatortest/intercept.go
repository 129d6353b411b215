// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package operatortest

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// Interceptor is a reverse proxy of an API server that can replace responses, as a load
// balancer or a broken proxy does.
type Interceptor struct {
	// Kubeconfig is the configuration of clients that pass it.
	Kubeconfig string

	mu   sync.Mutex
	rule func(*http.Request) http.HandlerFunc
	hits int
}

// NewInterceptor runs one before the API server of a configuration until the test ends.
// Requests are those of the configuration's user.
func NewInterceptor(t testing.TB, config *rest.Config) *Interceptor {
	t.Helper()
	i := &Interceptor{Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport, proxy.FlushInterval = HTTPClient(t, config).Transport, -1
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if replace := i.next(r); replace != nil {
			replace(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	const kubeconfig = `{"apiVersion":"v1","kind":"Config","current-context":"x","clusters":[{"name":"x","cluster":{"server":%q}}],"contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],"users":[{"name":"x","user":{}}]}`
	if err := os.WriteFile(i.Kubeconfig, fmt.Appendf(nil, kubeconfig, server.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	return i
}

func (i *Interceptor) next(r *http.Request) http.HandlerFunc {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.rule == nil {
		return nil
	}
	response := i.rule(r)
	if response != nil {
		i.hits++
	}
	return response
}

// Intercept sets the rule for all requests from now on: it returns the handler that
// responds in place of the API server, or nil. It is called for one request at a time.
func (i *Interceptor) Intercept(rule func(*http.Request) http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.rule, i.hits = rule, 0
}

// Hits is how many requests the current rule has answered.
func (i *Interceptor) Hits() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.hits
}

// Once returns a rule that answers the next request that matches, and no other.
func Once(match func(*http.Request) bool, response http.HandlerFunc) func(*http.Request) http.HandlerFunc {
	done := false
	return func(r *http.Request) http.HandlerFunc {
		if done || !match(r) {
			return nil
		}
		done = true
		return response
	}
}

// BadResponses are responses that no API server gives, whatever the request.
func BadResponses() map[string]http.HandlerFunc {
	respond := func(code int, contentType, body string, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", contentType)
			for pair := range slices.Chunk(header, 2) {
				w.Header().Set(pair[0], pair[1])
			}
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	const jsonType = "application/json"
	status := func(code int, status, reason string) http.HandlerFunc {
		return respond(code, jsonType, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":%q,"reason":%q,"code":%d}`, status, reason, code))
	}
	return map[string]http.HandlerFunc{
		"HTML":                respond(200, "text/html", "<html>welcome</html>"),
		"HTML as JSON":        respond(200, jsonType, "<html>welcome</html>"),
		"empty":               respond(200, jsonType, ""),
		"no content":          respond(204, jsonType, ""),
		"null":                respond(200, jsonType, "null"),
		"a list":              respond(200, jsonType, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[]}`),
		"truncated":           respond(200, jsonType, `{"kind":"CiliumNode","apiVersion":"cilium.io/v2","metadata":{"na`),
		"another object":      respond(200, jsonType, `{"kind":"CiliumNode","apiVersion":"cilium.io/v2","metadata":{"name":"another","uid":"u","resourceVersion":"5"}}`),
		"Status success":      status(200, "Success", ""),
		"Status failure":      status(200, "Failure", "NotFound"),
		"302":                 respond(302, "text/html", "", "Location", "/login"),
		"401":                 status(401, "Failure", "Unauthorized"),
		"403 text":            respond(403, "text/plain", "forbidden"),
		"404 text":            respond(404, "text/plain", "404 page not found"),
		"404 without details": status(404, "Failure", "NotFound"),
		"409 text":            respond(409, "text/plain", "conflict"),
		"409 without details": status(409, "Failure", "Conflict"),
		"410":                 status(410, "Failure", "Expired"),
		"500":                 respond(500, "text/html", "<html>oops</html>"),
		"504":                 status(504, "Failure", "Timeout"),
		"307 loop": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.String(), http.StatusTemporaryRedirect)
		},
	}
}
