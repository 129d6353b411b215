// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"runtime"
	"strings"
	"time"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/command"
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
	Election k8s.Election     `optional:"true"`
	Server   k8s.Server       `optional:"true"`
	Streams  *stream.Streams  `optional:"true"`
	Sections []health.Section `group:"status sections"`
	Pages    []command.Page   `group:"local api"`
}

func newReport(p reportParams) *report { return &report{p, time.Now()} }

// notReady says why this replica could not take over at once, or "".
func (r *report) notReady() string {
	if r.Election != nil && r.Election.Status().Holder == "" {
		return "it is not known who leads"
	}
	if r.Streams != nil {
		if unsynced := r.Streams.Unsynced(); len(unsynced) > 0 {
			return "streams wait for their initial state: " + strings.Join(unsynced, ", ")
		}
	}
	return ""
}

// screen is the operator on one screen.
type screen struct {
	Name      string              `json:"name"`
	Version   string              `json:"version"`
	Started   time.Time           `json:"started"`
	HeapBytes uint64              `json:"heapBytes"`
	APIServer string              `json:"apiServer,omitempty"`
	Election  *k8s.ElectionStatus `json:"election,omitempty"`
	Duties    []duty              `json:"duties"`
	Sections  []section           `json:"sections,omitempty"`
	Degraded  []health.Status     `json:"degraded,omitempty"`
}

// duty is a module of the leader's term.
type duty struct {
	ID     string `json:"id"`
	Title  string `json:"title"`
	State  string `json:"state"`            // off, standing by, OK, Degraded, Stopped
	Reason string `json:"reason,omitempty"` // why it is off
}

// section is what a module adds.
type section struct {
	Title   string     `json:"title"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

func (r *report) screen() screen {
	s := screen{
		Name: r.Binary.Name, Version: r.Binary.Version, Started: r.began,
		HeapBytes: heapBytes(), Duties: []duty{}, Degraded: r.Health.Degraded(),
	}
	if r.Server != nil {
		s.APIServer = r.Server.Address()
	}
	leading := true
	if r.Election != nil {
		election := r.Election.Status()
		s.Election, leading = &election, election.Leading
	}
	for _, m := range r.Graph().Modules {
		if m.ID != "" && m.Term != "" {
			s.Duties = append(s.Duties, dutyOf(m, leading))
		}
	}
	for _, contributed := range r.Sections {
		if rows := contributed.Rows(); len(rows) > 0 {
			s.Sections = append(s.Sections, section{contributed.Title, contributed.Columns, rows})
		}
	}
	return s
}

func dutyOf(m graph.Module, leading bool) duty {
	d := duty{ID: m.ID, Title: m.Title, State: m.Health, Reason: m.Reason}
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
