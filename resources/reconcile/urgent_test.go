// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

func TestUrgentKeysGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		var order []string
		var q *Queue[string]
		q = NewQueue(r.scope, "look", func(_ context.Context, key string) error {
			if order = append(order, key); key == "a" {
				q.Add("urgent 2")
				q.Add("c")
				q.Add("urgent 2") // which waits already
			}
			return nil
		}, Workers(1), Urgent(func(key string) bool { return strings.HasPrefix(key, "urgent") }))
		for _, key := range []string{"a", "b", "urgent 1"} {
			q.Add(key)
		}
		r.run(t, q.Run)
		synctest.Wait()
		r.stop()
		if want := []string{"urgent 1", "a", "urgent 2", "b", "c"}; !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
	})
}
