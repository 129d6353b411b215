// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A server whose etcd was restored from a backup is behind what it has sent. It
// accepts a watch from a later revision, and sends neither events nor bookmarks
// until it has reached that. Such a server was unreachable or silent meanwhile:
// after that a stream requests the server's revision before it watches again.

// checkRollback returns an error, after which the Reflector lists again, if a rollback
// is suspected and the server is behind the stream.
func (w *watcher[P]) checkRollback() error {
	if w.initial || !w.suspectRollback.Load() {
		return nil
	}
	now, err := w.serverRevision(w.ctx)
	if err != nil {
		return nil // the watch will fail alike
	}
	w.suspectRollback.Store(false)
	seen := w.changes.Revision()
	if now >= seen {
		return nil
	}
	w.Conditions.Warn("API server is behind the observed resourceVersion, relisting (etcd may have been restored from a backup)",
		"resourceVersion", now, "observed", seen)
	w.Conditions.Report()
	return apierrors.NewResourceExpired(fmt.Sprintf("resourceVersion %s is to come, the server is at %s", seen, now))
}
