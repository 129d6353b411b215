// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"runtime"
	"time"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// report gathers what the API and the socket tell.
type report struct {
	reportParams
	began time.Time
}

type reportParams struct {
	cell.In

	Binary   cell.Binary
	Registry *metrics.Registry
	Health   *health.Tree
	Graph    graph.Source
	Election k8s.Election `optional:"true"`
	Server   k8s.Server   `optional:"true"`
}

func newReport(p reportParams) *report { return &report{p, time.Now()} }

// notReady says why this replica could not take over now, or "".
func (r *report) notReady() string {
	if r.Election != nil && r.Election.Status().Holder == "" {
		return "it is not known who leads"
	}
	return ""
}

// Status is the operator on one screen.
type Status struct {
	Name      string              `json:"name"`
	Version   string              `json:"version"`
	Started   time.Time           `json:"started"`
	APIServer string              `json:"apiServer,omitempty"`
	Election  *k8s.ElectionStatus `json:"election,omitempty"`
	Duties    []Duty              `json:"duties"`
	Degraded  []health.Status     `json:"degraded,omitempty"`
	HeapBytes uint64              `json:"heapBytes"`
}

// Duty is a module of the leader's term.
type Duty struct {
	ID     string `json:"id"`
	Title  string `json:"title"`
	State  string `json:"state"`  // off, standing by, OK, Degraded
	Reason string `json:"reason"` // why it is off
}

func (r *report) status() Status {
	s := Status{Name: r.Binary.Name, Version: r.Binary.Version, Started: r.began, Degraded: r.Health.Degraded(), HeapBytes: heapBytes()}
	if r.Server != nil {
		s.APIServer = r.Server.Address()
	}
	leading := true
	if r.Election != nil {
		election := r.Election.Status()
		s.Election, leading = &election, election.Leading
	}
	for _, m := range r.Graph().Modules {
		if m.ID == "" || m.Term == "" {
			continue
		}
		s.Duties = append(s.Duties, duty(m, leading))
	}
	return s
}

func duty(m graph.Module, leading bool) Duty {
	d := Duty{ID: m.ID, Title: m.Title, State: m.Health, Reason: m.Reason}
	switch {
	case !m.Enabled:
		d.State = "off"
	case !leading:
		d.State = "standing by"
	case d.State == "":
		d.State = string(health.OK)
	}
	return d
}

func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
