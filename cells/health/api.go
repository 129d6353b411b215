// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/skep-operator/skep/runtime/health"
)

// api is the HTTP API that probes and tools of the original know. Its answers
// are byte-exact; what is ours is in extras.go.
type api struct {
	config Config
	check  *check
	report *report
}

func newAPI(c Config, check *check, r *report, log *slog.Logger, h health.Reporter) *server {
	listen := []func() (net.Listener, error){tcp(c.OperatorAPIServeAddr)}
	if c.OperatorAPIServeAddr == "" {
		listen = []func() (net.Listener, error){tcp("127.0.0.1:0"), tcp("[::1]:0")}
	}
	return newServer("api", (&api{c, check, r}).handler(), log, h, listen...)
}

func (a *api) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", a.healthz)
	a.get(mux, "/v1/healthz", "GetHealthz", a.v1Healthz)
	a.get(mux, "/v1/metrics", "GetMetrics", a.v1Metrics)
	a.get(mux, "/v1/metrics/{$}", "GetMetrics", a.v1Metrics)
	a.get(mux, "/v1/cluster", "GetCluster", a.v1Cluster)
	a.get(mux, "/v1/docs", "", a.docs)
	a.get(mux, "/swagger.json", "", a.swagger)
	a.get(mux, "/v1/livez", "", a.livez)
	a.get(mux, "/v1/readyz", "", a.readyz)
	a.get(mux, "/v1/leader", "", a.leader)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, fmt.Sprintf("path %s was not found", r.URL.Path))
	})
	return mux
}

// get serves GET only, and only where access to the part is given.
func (a *api) get(mux *http.ServeMux, path, part string, handle http.HandlerFunc) {
	mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet:
			w.Header().Set("Allow", http.MethodGet)
			writeError(w, http.StatusMethodNotAllowed, fmt.Sprintf("method %s is not allowed, but [GET] are", r.Method))
		case part != "" && !a.config.allowed(part):
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "This API is administratively disabled. Contact your administrator for more details.")
		default:
			handle(w, r)
		}
	})
}

func writeError(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	text, _ := json.Marshal(struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{code, message})
	_, _ = w.Write(text)
}

func writeText(w http.ResponseWriter, contentType string, code int, text string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(code)
	fmt.Fprint(w, text)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (a *api) healthz(w http.ResponseWriter, r *http.Request) {
	if _, verbose := r.URL.Query()["verbose"]; verbose {
		a.verbose(w, r)
		return
	}
	a.writeCheck(w, r, "text/plain; charset=utf-8")
}

func (a *api) v1Healthz(w http.ResponseWriter, r *http.Request) { a.writeCheck(w, r, "text/plain") }

func (a *api) writeCheck(w http.ResponseWriter, r *http.Request, contentType string) {
	if a.check.off() {
		w.WriteHeader(http.StatusNotImplemented)
		return
	}
	if err := a.check.run(r.Context()); err != nil {
		writeText(w, contentType, http.StatusInternalServerError, err.Error())
		return
	}
	writeText(w, contentType, http.StatusOK, "ok")
}

func (a *api) v1Metrics(w http.ResponseWriter, r *http.Request) {
	samples := []sample{}
	if a.config.EnableMetrics {
		var err error
		if samples, err = gather(a.report.Registry); err != nil {
			writeError(w, http.StatusInternalServerError, err.Error())
			return
		}
	}
	writeJSON(w, samples)
}

// v1Cluster lists remote clusters. The duties that connect to them are not
// built, so there are none.
func (a *api) v1Cluster(w http.ResponseWriter, _ *http.Request) { writeJSON(w, []struct{}{}) }

func (a *api) docs(w http.ResponseWriter, _ *http.Request) {
	writeText(w, "text/html; charset=utf-8", http.StatusOK, strings.TrimSpace(docsPage))
}

func (a *api) swagger(w http.ResponseWriter, _ *http.Request) {
	writeText(w, "application/json", http.StatusOK, swagger)
}
