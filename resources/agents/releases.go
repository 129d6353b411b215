// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package agents

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// Releases has the status of the leader name the releases of the agents (ID-41).
var Releases = cell.Module("agents.releases", "Counts the releases that agents run, for the status",
	cell.EnabledBy(k8s.InUse),
	Pods.Permissions(),
	cell.ProvideProcess(newCensus, newSection),
	cell.Job("count", watch),
)

// census is what the pods of agents say of their releases. It is empty on a replica that does not lead.
type census struct {
	mu    sync.Mutex
	pods  map[slim.Key]entry
	newer map[string]bool // versions that the log has
}

// entry is what the pod of an agent says.
type entry struct {
	node  slim.String
	count line
}

// line is one of the status: a release, and how it is known.
type line struct {
	release release.Release
	knownBy string
}

func newCensus() *census { return &census{newer: map[string]bool{}} }

// watch counts the agents as long as this replica leads.
func watch(c *census, pods stream.Resource[Pod], configured release.Configured, log *slog.Logger, ctx context.Context) error {
	c.reset(map[slim.Key]entry{})
	defer c.reset(nil)
	for batch := range pods.Changes(ctx, stream.BatchSize(64)) {
		for _, ch := range batch.Changes {
			for _, version := range c.apply(ch, configured) {
				log.Warn("agents are newer than the releases that this operator serves, and are served as those of the newest; upgrade the operator first",
					"version", version, "servedAs", release.Newest().String(), "pod", ch.Key.String())
			}
		}
	}
	return ctx.Err()
}

func (c *census) reset(pods map[slim.Key]entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods = pods
}

// apply records a change of an agent's pod. It returns the version of an agent that is newer than all that are served, if it is the first
// of that version.
func (c *census) apply(ch stream.Change[Pod], configured release.Configured) (newer []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch.Kind != stream.Upsert || ch.Object.Spec.NodeName == (slim.String{}) {
		delete(c.pods, ch.Key)
		return nil
	}
	v := ch.Object.version()
	c.pods[ch.Key] = entry{ch.Object.Spec.NodeName, lineOf(v, configured)}
	if v.isServed() || v.Release != release.Newest() || c.newer[v.text] || len(c.newer) == maxNewer {
		return nil
	}
	c.newer[v.text] = true
	return []string{v.text}
}

// lineOf is the line that an agent counts for.
func lineOf(v version, configured release.Configured) line {
	switch {
	case configured.Forced:
		return line{configured.Release, configured.KnownBy}
	case v.text == "":
		return line{configured.Release, "the configuration: neither image nor label has a version"}
	case !v.exact:
		return line{v.Release, fmt.Sprintf("%s, which has %s: the nearest that is served", v.knownBy, v.text)}
	}
	return line{v.Release, v.knownBy}
}

// maxNewer is how many versions that are not served the log names.
const maxNewer = 8

// rows are the releases, the newest first, each with the number of nodes that have an agent of it.
func (c *census) rows() (rows [][]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes := map[line]map[slim.String]bool{}
	for _, e := range c.pods {
		if nodes[e.count] == nil {
			nodes[e.count] = map[slim.String]bool{}
		}
		nodes[e.count][e.node] = true
	}
	for l, on := range nodes {
		rows = append(rows, []string{l.release.String(), strconv.Itoa(len(on)), l.knownBy})
	}
	slices.SortFunc(rows, func(a, b []string) int { return cmp.Or(cmp.Compare(b[0], a[0]), cmp.Compare(a[2], b[2])) })
	return rows
}

type section struct {
	cell.Out

	Section health.Section `group:"status sections"`
}

func newSection(c *census) section {
	return section{Section: health.Section{Title: "Agents", Columns: []string{"RELEASE", "NODES", "KNOWN BY"}, Rows: c.rows}}
}
