// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"context"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// crdMetadata is the metadata of a CRD whose changes are watched.
type crdMetadata struct {
	keptMetadata `json:"metadata"`
}

type keptMetadata struct {
	slim.Meta
	Labels            slim.Subset[versionLabel] `json:"labels"`
	Generation        int64                     `json:"generation"` // of the spec
	DeletionTimestamp slim.Time                 `json:"deletionTimestamp"`
}

// versionLabel keeps the labels with schema versions.
type versionLabel struct{}

// Keep implements slim.KeyFilter.
func (versionLabel) Keep(key string) bool { return versionLabels[key] }

// versionLabels are the labels of all kinds that hold schema versions.
var versionLabels = func() map[string]bool {
	labels := map[string]bool{}
	for _, k := range known() {
		labels[k.VersionLabel()] = true
	}
	return labels
}()

// versions are the versions that labels have, of whatever kind.
func versions(labels map[string]string) string {
	var all []string
	for _, label := range slices.Sorted(maps.Keys(versionLabels)) {
		all = append(all, labels[label])
	}
	return strings.Join(all, " ")
}

var crdKind = stream.Metadata[crdMetadata](crdResource)

// state is the state of a CRD in the watch or a read.
type state struct {
	uid        slim.UID
	revision   slim.Revision
	generation int64
	version    string // from the labels
	deleting   bool
	gone       bool
}

func stateOfMetadata(d *crdMetadata) state {
	return state{
		uid: d.UID, revision: d.ResourceVersion, generation: d.Generation,
		version: versions(d.Labels.Map()), deleting: !d.DeletionTimestamp.IsZero(),
	}
}

func stateOfCRD(u *unstructured.Unstructured) state {
	s := state{
		uid: slim.ParseUID(string(u.GetUID())), generation: u.GetGeneration(),
		version: versions(u.GetLabels()), deleting: u.GetDeletionTimestamp() != nil,
	}
	s.revision, _ = slim.ParseRevision(u.GetResourceVersion()) // 0 is older than any
	return s
}

// outdates reports whether s is newer than a read, and differs in fields that decisions depend on.
func (s state) outdates(read state) bool {
	if s.uid == read.uid && s.gone {
		return true
	}
	newer := s.revision > read.revision
	s.revision = read.revision
	return newer && s != read
}

// watch enqueues CRDs that change after they were read.
func (c *controller) watch(ctx context.Context) error {
	for batch := range c.CRDs.Changes(ctx) {
		for _, change := range batch.Changes {
			if c.isWanted(change.Key.Name) {
				now := stateOfMetadata(change.Object)
				now.gone = change.Kind == stream.Delete
				c.recordWatched(change.Key.Name, now)
			}
		}
		if batch.Synced {
			c.enqueueUnwatched()
		}
	}
	return ctx.Err()
}

func (c *controller) isWanted(name string) bool {
	_, wanted := c.kinds[name]
	return wanted
}

// recordWatched records the watched state of a CRD, and enqueues it if that outdates the read one.
func (c *controller) recordWatched(name string, now state) {
	c.mu.Lock()
	c.watched[name] = now
	read, isRead := c.read[name]
	c.mu.Unlock()
	if isRead && now.outdates(read) {
		c.enqueue(name, now)
	}
}

// recordRead records the read state of a CRD, and enqueues it if the watch is newer.
func (c *controller) recordRead(name string, read state) {
	c.mu.Lock()
	c.read[name] = read
	now, isSeen := c.watched[name]
	c.mu.Unlock()
	if isSeen && now.outdates(read) {
		c.enqueue(name, now)
	}
}

// enqueueUnwatched enqueues CRDs that were read, and are missing in the initial state of the watch.
func (c *controller) enqueueUnwatched() {
	c.mu.Lock()
	var unseen []string
	for name := range c.read {
		if _, isSeen := c.watched[name]; !isSeen {
			unseen = append(unseen, name)
		}
	}
	c.mu.Unlock()
	for _, name := range unseen {
		c.enqueue(name, state{})
	}
}

func (c *controller) enqueue(name string, now state) {
	c.queue.Add(name, k8s.Trigger{Kind: crdKind.Name(), Name: name, ResourceVersion: now.revision.String()})
}
