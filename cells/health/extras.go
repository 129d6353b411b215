// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/skep-operator/skep/runtime/health"
)

// verbose is /healthz with the whole health tree.
func (a *api) verbose(w http.ResponseWriter, r *http.Request) {
	code, first := http.StatusOK, "ok"
	if a.check.off() {
		code, first = http.StatusNotImplemented, "Kubernetes is off"
	} else if err := a.check.run(r.Context()); err != nil {
		code, first = http.StatusInternalServerError, err.Error()
	}
	var b strings.Builder
	fmt.Fprintln(&b, first)
	_ = health.WriteText(&b, a.report.Health.Snapshot(), time.Now()) // a Builder takes everything
	writeText(w, code, b.String())
}

// livez answers as long as the process can.
func (a *api) livez(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") }

// readyz answers ok once this replica could take over at once: it knows who leads,
// and has seen what its streams watch.
func (a *api) readyz(w http.ResponseWriter, _ *http.Request) {
	if why := a.report.notReady(); why != "" {
		writeText(w, http.StatusServiceUnavailable, why)
		return
	}
	writeText(w, http.StatusOK, "ok")
}

// leader tells who leads, as this replica sees it.
func (a *api) leader(w http.ResponseWriter, _ *http.Request) {
	if a.report.Election == nil {
		writeError(w, http.StatusNotImplemented, "there is no election")
		return
	}
	writeJSON(w, a.report.Election.Status())
}
