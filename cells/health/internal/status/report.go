// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package status

import (
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/clustermesh"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// Report is the state of the process that the API and the socket serve.
type Report struct {
	Params
	began  time.Time
	duties func() []duty // without what changes while the process runs
}

// Params are the dependencies of a Report.
type Params struct {
	cell.In

	Binary   cell.BuildInfo
	Registry *metrics.Registry
	Health   *health.Tree
	Graph    graph.Source
	Election leading.Election     `optional:"true"`
	Server   k8s.Server           `optional:"true"`
	Streams  *stream.Streams      `optional:"true"`
	Clusters *clustermesh.Current `optional:"true"`
	Sections []health.Section     `group:"status sections"`
	Pages    []command.Endpoint   `group:"local api"`
}

// New returns the report of this process.
func New(p Params) *Report {
	return &Report{p, time.Now(), sync.OnceValue(func() []duty { return dutiesOf(p.Graph()) })}
}

// NotReady is why this replica could not take over at once, or "".
func (r *Report) NotReady() string {
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

// Screen is the output of the status command.
type Screen struct {
	Name      string                  `json:"name"`
	Version   string                  `json:"version"`
	Started   time.Time               `json:"started"`
	HeapBytes uint64                  `json:"heapBytes"`
	APIServer string                  `json:"apiServer,omitempty"`
	Election  *leading.ElectionStatus `json:"election,omitempty"`
	Duties    []duty                  `json:"duties"`
	Sections  []section               `json:"sections,omitempty"`
	Degraded  []health.Status         `json:"degraded,omitempty"`
}

// duty is a module of the leader's term.
type duty struct {
	ID     string `json:"id"`
	Title  string `json:"title"`
	State  string `json:"state"`            // off, standing by, OK, Degraded, Stopped
	Reason string `json:"reason,omitempty"` // why it is off
}

// section is a table of a module.
type section struct {
	Title   string     `json:"title"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

func (r *Report) screen() Screen {
	s := Screen{
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
	levels := health.Aggregate(r.Health.Snapshot())
	for _, d := range r.duties() {
		s.Duties = append(s.Duties, d.at(levels[d.ID], leading))
	}
	for _, contributed := range r.Sections {
		if rows := contributed.Rows(); len(rows) > 0 {
			s.Sections = append(s.Sections, section{contributed.Title, contributed.Columns, rows})
		}
	}
	return s
}

// dutiesOf are the modules of terms. The state is that of those that are off. To make the graph takes milliseconds, and
// the status is polled.
func dutiesOf(g *graph.Graph) []duty {
	var duties []duty
	for _, m := range g.Modules {
		if m.ID == "" || m.Term == "" {
			continue
		}
		d := duty{ID: m.ID, Title: m.Title, Reason: m.Reason}
		if !m.Enabled {
			d.State = off
		}
		duties = append(duties, d)
	}
	return duties
}

// off is the state of a duty that is not enabled.
const off = "off"

// at is the duty with its state now.
func (d duty) at(level health.Level, leading bool) duty {
	switch {
	case d.State == off:
	case !leading:
		d.State = "standing by"
	case level == "":
		d.State = string(health.OK)
	default:
		d.State = string(level)
	}
	return d
}

func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
