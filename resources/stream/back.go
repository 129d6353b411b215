// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A server whose etcd was restored from a backup is behind what it has told. It
// takes a watch that goes on from there, and sends neither events nor bookmarks
// until it has come as far again. Such a server was away meanwhile, or says
// nothing: then a stream doubts it, and asks how far it is before it goes on.

// wentBack returns an error, after which the Reflector begins anew, if there was
// doubt about the server and it is behind the stream.
func (w *watcher[T]) wentBack() error {
	if w.initial || !w.doubted.Load() {
		return nil
	}
	now, err := w.serverRevision(w.ctx)
	if err != nil {
		return nil // the watch will meet with the same
	}
	w.doubted.Store(false)
	seen := w.changes.seen()
	if now >= seen {
		return nil
	}
	w.conditions.remark("the API server's data are older than what was seen of them, listing anew; was etcd restored?",
		"resourceVersion", now, "seen", seen)
	w.conditions.flush()
	return apierrors.NewResourceExpired(fmt.Sprintf("resourceVersion %s is to come, the server is at %s", seen, now))
}
