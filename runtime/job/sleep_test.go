// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package job_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/runtime/job"
)

func TestSleep(t *testing.T) {
	for name, c := range map[string]struct {
		d, until, took time.Duration // until ctx ends
		alive          bool
	}{
		"to the end":     {time.Second, time.Hour, time.Second, true},
		"cut short":      {time.Hour, time.Second, time.Second, false},
		"no time at all": {0, time.Hour, 0, true},
		"a time gone by": {-time.Hour, time.Hour, 0, true},
		"over before":    {-time.Hour, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.until)
				defer cancel()
				began := time.Now()
				if alive := job.Sleep(ctx, c.d); alive != c.alive || time.Since(began) != c.took {
					t.Errorf("after %s alive is %t", time.Since(began), alive)
				}
			})
		})
	}
}
