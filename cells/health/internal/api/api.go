// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/cells/health/internal/httpserver"
	"github.com/skep-operator/skep/cells/health/internal/status"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
	"github.com/skep-operator/skep/runtime/printable"
)

// handlers serve the HTTP API. The responses that the original has are byte-exact.
type handlers struct {
	config  Config
	metrics MetricsEnabled
	check   *Check
	report  *status.Report
}

// New returns the server of the API.
func New(c Config, m MetricsEnabled, check *Check, r *status.Report, log *slog.Logger, h health.Reporter) *httpserver.Server {
	listen := []httpserver.Listener{httpserver.TCP(c.OperatorAPIServeAddr)}
	if c.OperatorAPIServeAddr == "" {
		listen = []httpserver.Listener{ifAvailable(httpserver.TCP("127.0.0.1:0")), ifAvailable(httpserver.TCP("[::1]:0"))}
	}
	return httpserver.New("api", httpserver.Common, (&handlers{c, m, check, r}).router(), log, h, listen...)
}

// ifAvailable listens unless the host lacks the address family.
func ifAvailable(listen httpserver.Listener) httpserver.Listener {
	return func() (net.Listener, error) {
		l, err := listen()
		if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
			return nil, nil
		}
		return l, err
	}
}

func (a *handlers) router() httpserver.Router {
	return httpserver.Router{
		"/healthz":      a.healthz,
		"/v1/healthz":   a.endpoint("GetHealthz", httpserver.Producing("text/plain", a.v1Healthz)),
		metricsPath:     a.endpoint("GetMetrics", httpserver.Producing("application/json", a.v1Metrics)),
		"/v1/cluster":   a.endpoint("GetCluster", httpserver.Producing("application/json", a.v1Cluster)),
		"/v1/docs":      httpserver.GetOnly(a.docs),
		"/swagger.json": httpserver.GetOnly(a.swagger),
		"/v1/livez":     httpserver.GetOnly(a.livez),
		"/v1/readyz":    httpserver.GetOnly(a.readyz),
		"/v1/leader":    httpserver.GetOnly(a.leader),
	}
}

// endpoint serves an endpoint of the API if the options permit it.
func (a *handlers) endpoint(name string, handle http.HandlerFunc) http.HandlerFunc {
	if a.config.allowed(name) {
		return httpserver.GetOnly(handle)
	}
	return httpserver.GetOnly(func(w http.ResponseWriter, _ *http.Request) {
		httpserver.WriteText(w, http.StatusForbidden, "This API is administratively disabled. Contact your administrator for more details.")
	})
}

func (a *handlers) healthz(w http.ResponseWriter, r *http.Request) {
	if _, verbose := r.URL.Query()["verbose"]; verbose {
		a.verbose(w, r)
		return
	}
	a.writeCheck(w, r, "text/plain; charset=utf-8")
}

func (a *handlers) v1Healthz(w http.ResponseWriter, r *http.Request) {
	a.writeCheck(w, r, "text/plain")
}

func (a *handlers) writeCheck(w http.ResponseWriter, r *http.Request, contentType string) {
	if a.check.off() {
		w.WriteHeader(http.StatusNotImplemented)
		return
	}
	if err := a.check.Run(r.Context()); err != nil {
		httpserver.Write(w, http.StatusInternalServerError, contentType, printable.Line(err.Error()))
		return
	}
	httpserver.Write(w, http.StatusOK, contentType, "ok")
}

func (a *handlers) v1Metrics(w http.ResponseWriter, _ *http.Request) {
	writeSamples(w, a.metrics, a.report.Registry)
}

func writeSamples(w http.ResponseWriter, enabled MetricsEnabled, from prometheus.Gatherer) {
	samples := []Sample{}
	if enabled {
		var err error
		if samples, err = gather(from); err != nil {
			httpserver.WriteError(w, http.StatusInternalServerError, err.Error())
			return
		}
	}
	httpserver.WriteJSON(w, samples)
}

// Page has the metrics at the local socket, too.
type Page struct {
	cell.Out

	Metrics command.Endpoint `group:"local api"`
}

// metricsPath is where the API and the local socket have the metrics.
const metricsPath = "/v1/metrics"

// NewPage returns the page of the metrics.
func NewPage(enabled MetricsEnabled, from *metrics.Registry) Page {
	return Page{Metrics: command.Endpoint{Path: metricsPath, Serve: func(w http.ResponseWriter, _ *http.Request) { writeSamples(w, enabled, from) }}}
}

// v1Cluster lists the remote clusters that this replica reads, while it leads.
func (a *handlers) v1Cluster(w http.ResponseWriter, _ *http.Request) {
	httpserver.WriteJSON(w, a.report.Clusters.Statuses())
}

func (a *handlers) docs(w http.ResponseWriter, _ *http.Request) {
	httpserver.Write(w, http.StatusOK, "text/html; charset=utf-8", strings.TrimSpace(DocsPage))
}

func (a *handlers) swagger(w http.ResponseWriter, _ *http.Request) {
	httpserver.Write(w, http.StatusOK, "application/json", Swagger)
}

// verbose is /healthz with the health tree.
func (a *handlers) verbose(w http.ResponseWriter, r *http.Request) {
	code, first := http.StatusOK, "ok"
	if a.check.off() {
		code, first = http.StatusNotImplemented, "Kubernetes is off"
	} else if err := a.check.Run(r.Context()); err != nil {
		code, first = http.StatusInternalServerError, err.Error()
	}
	var b strings.Builder
	fmt.Fprintln(&b, printable.Line(first))
	_ = health.WriteText(&b, a.report.Health.Snapshot(), time.Now()) // a Builder does not fail
	httpserver.WriteText(w, code, b.String())
}

// livez is ok while the process responds.
func (a *handlers) livez(w http.ResponseWriter, _ *http.Request) {
	httpserver.WriteText(w, http.StatusOK, "ok")
}

// readyz is ok once this replica could take over at once: the lease holder is known, and the streams are synced.
func (a *handlers) readyz(w http.ResponseWriter, _ *http.Request) {
	if why := a.report.NotReady(); why != "" {
		httpserver.WriteText(w, http.StatusServiceUnavailable, printable.Line(why))
		return
	}
	httpserver.WriteText(w, http.StatusOK, "ok")
}

// leader is the election, as this replica sees it.
func (a *handlers) leader(w http.ResponseWriter, _ *http.Request) {
	if a.report.Election == nil {
		httpserver.WriteError(w, http.StatusNotImplemented, "there is no election")
		return
	}
	httpserver.WriteJSON(w, a.report.Election.Status())
}
