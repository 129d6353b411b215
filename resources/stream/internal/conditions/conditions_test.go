// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package conditions

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/runtime/logging/logtest"
)

// A kind that is defined within seconds, as on a fresh cluster, makes no line; one that stays without a definition makes one, and one when it comes. What
// else is wrong is logged at once.
func TestMissingDefinition(t *testing.T) {
	gone := errors.New("not defined")
	for name, test := range map[string]struct {
		after time.Duration
		what  string
		lines int
	}{
		"soon":              {patience - time.Second, Resource, 0},
		"late":              {patience + time.Second, Resource, 2},
		"another condition": {time.Second, Connection, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out logtest.Buffer
				c := New(slog.New(slog.NewTextHandler(&out, nil)), nil)
				c.SetAndReport(test.what, gone)
				time.Sleep(test.after)
				synctest.Wait()
				c.SetAndReport(test.what, nil)
				time.Sleep(2 * patience)
				synctest.Wait()
				if n := len(out.Lines()); n != test.lines {
					t.Errorf("%d lines, want %d:\n%s", n, test.lines, &out)
				}
			})
		})
	}
}
