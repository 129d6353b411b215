// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Cell reads the remote clusters for the duration of a term.
var Cell = cell.Module("clustermesh", "Reads what other clusters of the mesh publish in their etcds",
	cell.Config(DefaultConfig),
	cell.EnabledBy(InUse),
	k8s.RBAC(
		k8s.Allow("get", schema.GroupResource{Resource: "services"}), // of etcds whose endpoints name them
		k8s.Allow("create,get,update", leases.GroupResource()),       // one, which keeps the IDs of clusters
	),

	cell.Metrics(newMetrics),
	cell.ProvideProcess(newCurrent, newSection),
	cell.Provide(newMesh),
	cell.Hook("current", newHook),
	cell.Annotate(troubleshootCommand),
	cell.Job("read", func(m *Mesh) job.Job { return job.OneShot(m.run) }),
	cell.Job("ids", func(m *Mesh) job.Job { return job.OneShot(m.keepIDs) }),
)

// Current has the mesh of the term that this process is in, if any.
type Current struct{ mesh atomic.Pointer[Mesh] }

func newCurrent() *Current { return &Current{} }

// newHook has the process know the mesh.
func newHook(m *Mesh, c *Current) lifecycle.Hook {
	return lifecycle.Funcs{
		OnStart: func(context.Context) error { c.mesh.Store(m); return nil },
		OnStop:  func(context.Context) error { c.mesh.CompareAndSwap(m, nil); return nil },
	}
}

// section is the remote clusters on the status screen.
type section struct {
	cell.Out

	Section health.Section `group:"status sections"`
}

func newSection(c *Current) section {
	return section{Section: health.Section{
		Title: "Remote clusters", Columns: []string{"CLUSTER", "STATE", "SERVICES", "ETCD"},
		Rows: func() [][]string {
			var rows [][]string
			for _, s := range c.Statuses() {
				rows = append(rows, s.row())
			}
			return rows
		},
	}}
}
