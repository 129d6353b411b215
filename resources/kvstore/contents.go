// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// kinds are what the kvstore holds, of all clusters that share it.
var kinds = []struct{ name, prefix string }{
	{"cluster configurations", Folder(ClusterConfigPrefix)},
	{"services", Folder(ServicesPrefix)},
	{"EndpointSlices", Folder(EndpointSlicesPrefix)},
	{"service exports", Folder(ServiceExportsPrefix)},
	{"nodes", Folder(NodesPrefix)},
	{"identities", Folder(IdentitiesPrefix)},
	{"users of identities", Folder(IdentityValuesPrefix)},
	{"identity locks", Folder(IdentityLocksPrefix)},
}

// contents are the numbers of keys by kind, in the order of kinds.
type contents struct {
	at    time.Time
	texts []string // a number, or that it is not known
}

// countKeys counts the keys of all kinds, unless that was done a moment ago. It costs a
// request for each kind, which transfers no keys.
func (s *healthChecker) countKeys(ctx context.Context) {
	etcd := s.client.Load()
	s.mu.Lock()
	due := time.Since(s.contents.at) >= s.timing.check
	s.mu.Unlock()
	if etcd == nil || !due || s.interceptor.overlay != nil {
		return
	}
	now := contents{at: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, s.timing.checkTimeout)
	defer cancel()
	for _, k := range kinds {
		resp, err := etcd.Get(ctx, k.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithSerializable())
		if err != nil {
			s.log.Debug("keys in etcd could not be counted", "prefix", k.prefix, "error", err)
			now.texts = append(now.texts, "unknown")
			continue
		}
		now.texts = append(now.texts, strconv.FormatInt(resp.Count, 10))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contents = now
}

// counted returns the numbers of the last count.
func (s *healthChecker) counted() contents {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.contents
}

// section is the contents of the kvstore on the status screen of the leader.
type section struct {
	cell.Out

	Section health.Section `group:"status sections"`
}

func newSection(b *currentConn) section {
	return section{Section: health.Section{
		Title:   "Key-value store",
		Columns: []string{"KIND", "KEYS", "PREFIX", "COUNTED"},
		Rows: func() (rows [][]string) {
			c := b.conn.Load()
			if c == nil {
				return nil
			}
			last := c.health.counted()
			for i, text := range last.texts {
				rows = append(rows, []string{kinds[i].name, text, kinds[i].prefix, time.Since(last.at).Round(time.Second).String() + " ago"})
			}
			return rows
		},
	}}
}
