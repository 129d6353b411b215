// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/cells/health/internal/api"
	"github.com/skep-operator/skep/cells/health/internal/httpserver"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/health"
)

const (
	plainText = "text/plain; charset=utf-8"
	jsonText  = "application/json"
)

// API-1 to API-6.
func TestAnswers(t *testing.T) {
	o := start(t, "--enable-k8s=false", "--enable-cilium-operator-server-access=*")
	for _, test := range []struct {
		method, path string
		want         answer
	}{
		{"GET", "/healthz", answer{501, "", ""}},
		{"GET", "/v1/healthz", answer{501, "", ""}},
		{"POST", "/v1/healthz", answer{405, jsonText, `{"code":405,"message":"method POST is not allowed, but [GET] are"}`}},
		{"DELETE", "/v1/metrics", answer{405, jsonText, `{"code":405,"message":"method DELETE is not allowed, but [GET] are"}`}},
		{"GET", "/v1/metrics", answer{200, jsonText, "[]\n"}},
		{"GET", "/v1/metrics/", answer{200, jsonText, "[]\n"}},
		{"GET", "/v1/cluster", answer{200, jsonText, "[]\n"}},
		{"GET", "/v1/cluster/", answer{200, jsonText, "[]\n"}},
		{"GET", "/v1//cluster", answer{200, jsonText, "[]\n"}},
		{"GET", "/v1/x/../cluster", answer{200, jsonText, "[]\n"}},
		{"GET", "/v1/healthz/", answer{501, "", ""}},
		{"POST", "/v1/healthz/", answer{405, jsonText, `{"code":405,"message":"method POST is not allowed, but [GET] are"}`}},
		{"GET", "/healthz/", answer{404, jsonText, `{"code":404,"message":"path /healthz/ was not found"}`}},
		{"GET", "/v1/nope", answer{404, jsonText, `{"code":404,"message":"path /v1/nope was not found"}`}},
		{"GET", "/", answer{404, jsonText, `{"code":404,"message":"path / was not found"}`}},
		{"GET", "//healthz", answer{404, jsonText, `{"code":404,"message":"path //healthz was not found"}`}},
		{"GET", "/v1/../healthz", answer{404, jsonText, `{"code":404,"message":"path /v1/../healthz was not found"}`}},
		{"GET", "/v1/metrics/x", answer{404, jsonText, `{"code":404,"message":"path /v1/metrics/x was not found"}`}},
		{"GET", "/a%20b%3Cc", answer{404, jsonText, `{"code":404,"message":"path /a%20b%3Cc was not found"}`}},
		{"POST", "/v1/nope", answer{404, jsonText, `{"code":404,"message":"path /v1/nope was not found"}`}},
		{"GET", "/v1/is-operator", answer{404, jsonText, `{"code":404,"message":"path /v1/is-operator was not found"}`}},
		{"GET", "/v1/docs", answer{200, "text/html; charset=utf-8", strings.TrimSpace(api.DocsPage)}},
		{"GET", "/swagger.json", answer{200, jsonText, api.Swagger}},
		{"GET", "/v1/swagger.json", answer{404, jsonText, `{"code":404,"message":"path /v1/swagger.json was not found"}`}},
		{"GET", "/v1/livez", answer{200, plainText, "ok"}},
		{"GET", "/v1/readyz", answer{503, plainText, "it is not known who leads"}},
	} {
		t.Run(test.method+" "+test.path, func(t *testing.T) {
			if got := o.ask(test.method, "api", test.path); got != test.want {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

// API-15: what a client accepts.
func TestAccept(t *testing.T) {
	o := start(t, "--enable-k8s=false", "--enable-cilium-operator-server-access=GetHealthz,GetMetrics")
	refused := func(types string) answer {
		return answer{406, jsonText, `{"code":406,"message":"unsupported media type requested, only [` + types + `] are available"}`}
	}
	metrics, health := answer{200, jsonText, "[]\n"}, answer{501, "", ""}
	for _, test := range []struct {
		path, accept string
		want         answer
	}{
		{"/v1/metrics", "", metrics},
		{"/v1/metrics", "*/*", metrics},
		{"/v1/metrics", "application/*", metrics},
		{"/v1/metrics", "text/html, application/json;q=0.1", metrics},
		{"/v1/metrics", "text/plain", refused("application/json")},
		{"/v1/metrics", "application/json;q=0", refused("application/json")},
		{"/v1/metrics/", "text/*", refused("application/json")},
		{"/v1/healthz", "text/plain", health},
		{"/v1/healthz", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", health},
		{"/v1/healthz", "application/json", refused("text/plain")},
		{"/healthz", "application/json", health},
		{"/v1/cluster", "text/plain", answer{403, plainText, "This API is administratively disabled. Contact your administrator for more details."}},
		{"/swagger.json", "text/html", answer{200, jsonText, api.Swagger}},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+o.address("api")+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if test.accept != "" {
			req.Header.Set("Accept", test.accept)
		}
		got, err := send(newClient(), req)
		if err != nil {
			t.Fatal(err)
		}
		if got != test.want {
			t.Errorf("%s, accepting %q: %+v, want %+v", test.path, test.accept, got, test.want)
		}
	}
}

// API-1: healthy is who reaches the API server; an answer comes within the
// time of a probe whatever is wrong.
func TestHealthz(t *testing.T) {
	proxy := clustertest.Shared(t).NewProxy(t)
	o := start(t, "--k8s-api-server=", "--k8s-kubeconfig-path="+proxy.Kubeconfig())
	healthy := func() bool { return o.get("/healthz").code == 200 }
	operatortest.Eventually(t, "healthy", healthy)

	// A check that is held up for two seconds by a slow machine fails: it is repeated.
	for _, method := range []string{"GET", "HEAD", "POST", "DELETE"} {
		want := answer{200, plainText, "ok"}
		if method == "HEAD" {
			want.body = ""
		}
		operatortest.Eventually(t, fmt.Sprintf("%s /healthz: %+v", method, want), func() bool { return o.ask(method, "api", "/healthz") == want })
	}
	want := answer{200, "text/plain", "ok"}
	operatortest.Eventually(t, fmt.Sprintf("GET /v1/healthz: %+v", want), func() bool { return o.get("/v1/healthz") == want })
	operatortest.Eventually(t, "GET /healthz?verbose is ok", func() bool {
		got := o.get("/healthz?verbose")
		return got.code == 200 && strings.HasPrefix(got.body, "ok\n") && strings.Contains(got.body, "OK       api: serving at ")
	})

	for name, fault := range map[string]func(){
		"refuses":   func() { proxy.Refuse(t); proxy.Cut(t) },
		"says 500":  func() { proxy.Answer(t, 500, clustertest.Match{PathPrefixes: []string{"/version"}}) },
		"is silent": func() { proxy.BlackHole(t) },
	} {
		t.Run("API server "+name, func(t *testing.T) {
			fault()
			defer func() {
				proxy.Heal(t)
				operatortest.Eventually(t, "healthy again", healthy)
			}()
			const text = "unable to reach the API server https://"
			// On a loaded machine a check may end too late for its error to be the response.
			operatortest.Eventually(t, "the error of the check", func() bool {
				got := o.get("/healthz")
				if got.code != 500 || got.contentType != plainText {
					t.Errorf("GET /healthz: %+v", got)
				}
				return strings.HasPrefix(got.body, text)
			})
			if got := o.get("/v1/healthz"); got.code != 500 || got.contentType != "text/plain" {
				t.Errorf("GET /v1/healthz: %+v", got)
			}
			if got := o.get("/healthz?verbose"); got.code != 500 || !strings.Contains(got.body, "\nOK       health\n") {
				t.Errorf("GET /healthz?verbose: %+v", got)
			}
			if got := o.get("/v1/livez"); got.code != 200 {
				t.Errorf("GET /v1/livez: %+v; a restart would not help", got)
			}
		})
	}
}

// API-7: access.
func TestAccess(t *testing.T) {
	const denied = "This API is administratively disabled. Contact your administrator for more details."
	for access, open := range map[string]map[string]bool{
		"GetHealthz":         {"/v1/healthz": true},
		"GetM*,GetCluster":   {"/v1/metrics": true, "/v1/metrics/": true, "/v1/cluster": true},
		"Get*":               {"/v1/healthz": true, "/v1/metrics": true, "/v1/metrics/": true, "/v1/cluster": true},
		"GetCluster Get*thz": nil,
	} {
		t.Run(access, func(t *testing.T) {
			o, err := declare(t, "--enable-k8s=false", "--enable-cilium-operator-server-access="+access)
			if open == nil {
				if err == nil || !strings.Contains(err.Error(), `"Get*thz" is none`) {
					t.Errorf("accepted: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := o.hive.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer o.stop()
			for _, path := range []string{"/v1/healthz", "/v1/metrics", "/v1/metrics/", "/v1/cluster"} {
				got := o.get(path)
				if isDenied := got == (answer{403, plainText, denied}); isDenied == open[path] {
					t.Errorf("GET %s: %+v", path, got)
				}
			}
			for _, path := range []string{"/healthz", "/v1/livez", "/swagger.json", "/v1/docs"} {
				if got := o.get(path); got.code == 403 {
					t.Errorf("GET %s is denied", path)
				}
			}
		})
	}
}

// API-8 and API-9: who leads, and who could.
func TestLeader(t *testing.T) {
	o := start(t)
	if got := o.get("/v1/readyz"); got.code != 503 {
		t.Errorf("before the election: %+v", got)
	}
	want := leading.ElectionStatus{
		Lease: "kube-system/lock", Identity: "me", Holder: "other", Transitions: 3, Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	o.election.set(want)
	if got := o.get("/v1/readyz"); got != (answer{200, plainText, "ok"}) {
		t.Errorf("on a standby: %+v", got)
	}
	got := o.get("/v1/leader")
	const body = `{"lease":"kube-system/lock","identity":"me","holder":"other","leading":false,"since":"2026-01-02T03:04:05Z","transitions":3}` + "\n"
	if got != (answer{200, jsonText, body}) {
		t.Errorf("GET /v1/leader: %+v", got)
	}
}

// API-10: an empty address means free ports on both loopbacks.
func TestFreePorts(t *testing.T) {
	o := start(t, "--operator-api-serve-addr=")
	for address := range strings.SplitSeq(o.address("api"), ", ") {
		got, err := request(t, newClient(), http.MethodGet, "http://"+address+"/v1/livez")
		if err != nil || got.code != 200 {
			t.Errorf("%s: %+v, %v", address, got, err)
		}
	}
	if !strings.HasPrefix(o.status("api").Message, "serving at 127.0.0.1:") {
		t.Errorf("it serves %q", o.status("api").Message)
	}
}

// A panicking request ends alone.
func TestPanickingRequest(t *testing.T) {
	o := start(t)
	s := httpserver.New("panics", httpserver.Common, httpserver.Router{"/": func(http.ResponseWriter, *http.Request) { panic("at will") }, "/ok": func(http.ResponseWriter, *http.Request) {}},
		discard, o.health.Reporter("health"), httpserver.TCP("127.0.0.1:0"))
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop(t.Context()) }()
	if _, err := request(t, newClient(), http.MethodGet, "http://"+o.address("panics")+"/"); err == nil {
		t.Error("it was answered")
	}
	if got := o.ask(http.MethodGet, "panics", "/ok"); got.code != 200 || o.status("panics").Level != health.OK {
		t.Errorf("afterwards: %+v", got)
	}
}
