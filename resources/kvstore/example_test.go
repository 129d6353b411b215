// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore_test

import (
	"context"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

// A duty that syncs keys of its cluster from a source.
func ExampleSyncStore() {
	_ = cell.Module("greetings", "Tells other clusters about greetings",
		cell.EnabledBy(kvstore.InUse),
		cell.Job("sync", func(c kvstore.Client, s reconcile.Deps) (job.Job, error) {
			store, err := kvstore.NewSyncStore(c, s, "cilium/state/greetings/v1", "cluster1")
			if err != nil {
				return job.Job{}, err
			}
			store.Upsert("morning", []byte(`{"text":"hello"}`), k8s.Trigger{Kind: "ConfigMap", Name: "morning"})
			store.Synced() // once the source is complete
			return job.OneShot(store.Run), nil
		}),
	)
}

// A sweep deletes unused keys unless they were changed meanwhile.
func ExampleClient_writeIf() {
	sweep := func(ctx context.Context, c kvstore.Client) error {
		unused, err := c.List(ctx, kvstore.Folder(kvstore.IdentitiesPrefix))
		if err != nil {
			return err
		}
		for _, e := range unused.Entries {
			users := kvstore.Folder(kvstore.IdentityValuesPrefix, string(e.Value))
			guards := []kvstore.Guard{kvstore.Unchanged(e), kvstore.NoneUnder(users)}
			if _, err := c.WriteIf(ctx, guards, kvstore.Remove(e.Key)); err != nil {
				return err
			}
		}
		return nil
	}
	_ = sweep
}

// A cache of a prefix, complete after Synced.
func ExampleClient_watch() {
	view := func(ctx context.Context, c kvstore.Client) {
		keys := map[string]kvstore.Entry{}
		for e := range c.Watch(ctx, kvstore.Folder(kvstore.NodesPrefix, "cluster1")) {
			switch e.Kind {
			case kvstore.Upsert:
				keys[e.Key] = e.Entry
			case kvstore.Delete:
				delete(keys, e.Key)
			case kvstore.Synced:
				// keys is complete
			}
		}
	}
	_ = view
}
