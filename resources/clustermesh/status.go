// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skep-operator/skep/runtime/printable"
)

// RemoteCluster is the state of a remote cluster, in the JSON of the original's API.
type RemoteCluster struct {
	Name              string       `json:"name"`
	Connected         bool         `json:"connected"`
	Ready             bool         `json:"ready"`
	Status            string       `json:"status"`
	NumFailures       int          `json:"num-failures"`
	LastFailure       time.Time    `json:"last-failure"`
	NumSharedServices int          `json:"num-shared-services"`
	Config            RemoteConfig `json:"config"`
	Synced            RemoteSynced `json:"synced"`
}

// RemoteConfig is the configuration that a remote cluster publishes.
type RemoteConfig struct {
	Required              bool  `json:"required"`
	Retrieved             bool  `json:"retrieved"`
	ClusterID             int64 `json:"cluster-id"`
	KVStoreMesh           bool  `json:"kvstoremesh"`
	SyncCanaries          bool  `json:"sync-canaries"`
	ServiceExportsEnabled *bool `json:"service-exports-enabled,omitempty"`
}

// RemoteSynced says what has been read of a remote cluster. What an operator does not read counts as read.
type RemoteSynced struct {
	Nodes      bool `json:"nodes"`
	Endpoints  bool `json:"endpoints"`
	Identities bool `json:"identities"`
	Services   bool `json:"services"`
}

// Statuses returns the states of the remote clusters, by name. A replica that does not lead has none.
func (c *Current) Statuses() []RemoteCluster {
	all := []RemoteCluster{}
	if c == nil {
		return all
	}
	m := c.mesh.Load()
	if m == nil {
		return all
	}
	m.mu.Lock()
	remotes := slices.Collect(maps.Values(m.remotes))
	m.mu.Unlock()
	for _, r := range remotes {
		all = append(all, r.remoteCluster())
	}
	slices.SortFunc(all, func(a, b RemoteCluster) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// remoteCluster returns the state of the cluster.
func (r *remote) remoteCluster() RemoteCluster {
	text, err := r.describe(time.Now())
	read := r.isRead()
	services, _ := r.mesh.Services.count(r.name)
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	c := RemoteCluster{
		Name: r.name, Connected: s.etcd.Err == nil, Ready: s.etcd.Err == nil && read,
		Status: s.etcd.String(), NumFailures: s.failures, LastFailure: s.lastFailure,
		NumSharedServices: services,
		Config:            RemoteConfig{Required: true},
		Synced:            RemoteSynced{Nodes: true, Endpoints: true, Identities: true, Services: read},
	}
	switch {
	case err != nil:
		c.Status = err.Error()
	case len(s.etcd.Endpoints) == 0:
		c.Status = text
	}
	if s.config != nil {
		c.Config.Retrieved, c.Config.ClusterID = true, int64(s.config.ID)
		c.Config.KVStoreMesh, c.Config.SyncCanaries = s.config.Capabilities.Cached, s.config.Capabilities.SyncedCanaries
		c.Config.ServiceExportsEnabled = s.config.Capabilities.ServiceExportsEnabled
	}
	return c
}

// state is the state in a word.
func (c RemoteCluster) state() string {
	switch {
	case c.Ready:
		return "ready"
	case c.Connected:
		return "not ready"
	}
	return "unreachable"
}

func (c RemoteCluster) row() []string {
	return []string{c.Name, c.state(), strconv.Itoa(c.NumSharedServices), c.Status}
}

// WriteText prints the states of remote clusters: those that are not ready, or all if verbose.
func WriteText(w io.Writer, all []RemoteCluster, verbose bool) error {
	ready, services := 0, 0
	for _, c := range all {
		if c.Ready {
			ready++
		}
		services += c.NumSharedServices
	}
	var b strings.Builder
	fmt.Fprintf(&b, "ClusterMesh:\t%d/%d remote clusters ready, %d global services\n", ready, len(all), services)
	for _, c := range all {
		if verbose || !c.Ready {
			c.write(&b)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (c RemoteCluster) write(b *strings.Builder) {
	last := "never"
	if !c.LastFailure.IsZero() {
		last = c.LastFailure.UTC().Format(time.RFC3339)
	}
	fmt.Fprintf(b, "  %s: %s, %d services, %d failures (last: %s)\n", printable.Line(c.Name), c.state(), c.NumSharedServices, c.NumFailures, last)
	fmt.Fprintf(b, "    %s\n", printable.Line(c.Status))
	exports := "unsupported"
	if on := c.Config.ServiceExportsEnabled; on != nil {
		exports = map[bool]string{true: "enabled", false: "disabled"}[*on]
	}
	fmt.Fprintf(b, "    remote configuration: expected=%t, retrieved=%t, cluster-id=%d, kvstoremesh=%t, sync-canaries=%t, service-exports=%s\n",
		c.Config.Required, c.Config.Retrieved, c.Config.ClusterID, c.Config.KVStoreMesh, c.Config.SyncCanaries, exports)
	fmt.Fprintf(b, "    synchronization status: nodes=%t, endpoints=%t, identities=%t, services=%t\n",
		c.Synced.Nodes, c.Synced.Endpoints, c.Synced.Identities, c.Synced.Services)
}
