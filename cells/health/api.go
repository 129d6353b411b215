// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"

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
	listen := []listener{tcp(c.OperatorAPIServeAddr)}
	if c.OperatorAPIServeAddr == "" {
		listen = []listener{whereThereIs(tcp("127.0.0.1:0")), whereThereIs(tcp("[::1]:0"))}
	}
	return newServer("api", (&api{c, check, r}).router(), log, h, listen...)
}

// whereThereIs listens unless the host lacks the address family.
func whereThereIs(listen listener) listener {
	return func() (net.Listener, error) {
		l, err := listen()
		if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
			return nil, nil
		}
		return l, err
	}
}

func (a *api) router() router {
	return router{
		"/healthz":      a.healthz,
		"/v1/healthz":   a.part("GetHealthz", a.v1Healthz),
		"/v1/metrics":   a.part("GetMetrics", a.v1Metrics),
		"/v1/metrics/":  a.part("GetMetrics", a.v1Metrics),
		"/v1/cluster":   a.part("GetCluster", a.v1Cluster),
		"/v1/docs":      getOnly(a.docs),
		"/swagger.json": getOnly(a.swagger),
		"/v1/livez":     getOnly(a.livez),
		"/v1/readyz":    getOnly(a.readyz),
		"/v1/leader":    getOnly(a.leader),
	}
}

// part serves a part of the API where access to it is given.
func (a *api) part(name string, handle http.HandlerFunc) http.HandlerFunc {
	if a.config.allowed(name) {
		return getOnly(handle)
	}
	return getOnly(func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusForbidden, "This API is administratively disabled. Contact your administrator for more details.")
	})
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
		write(w, http.StatusInternalServerError, contentType, err.Error())
		return
	}
	write(w, http.StatusOK, contentType, "ok")
}

func (a *api) v1Metrics(w http.ResponseWriter, _ *http.Request) {
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

// v1Cluster lists remote clusters. No cell connects to any, so there are none.
func (a *api) v1Cluster(w http.ResponseWriter, _ *http.Request) { writeJSON(w, []struct{}{}) }

func (a *api) docs(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, "text/html; charset=utf-8", strings.TrimSpace(docsPage))
}

func (a *api) swagger(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, "application/json", swagger)
}
