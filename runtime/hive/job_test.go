// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

type counting struct {
	runs []time.Duration // since the start
	from time.Time
	fail int // that many times
}

func (c *counting) run(context.Context) error {
	c.runs = append(c.runs, time.Since(c.from))
	if len(c.runs) <= c.fail {
		return errors.New("not yet")
	}
	return nil
}

// A job is declared by its work: a function of values and a context.
func TestAJobIsDeclaredByItsWork(t *testing.T) {
	for name, c := range map[string]struct {
		options []cell.RootOption
		fail    int
		want    int // runs in a minute
	}{
		"once":                       {nil, 0, 1},
		"once, and it fails":         {nil, 5, 1},
		"until it succeeds":          {[]cell.RootOption{cell.Retry(time.Second, 2*time.Second)}, 3, 4},
		"at an interval":             {[]cell.RootOption{cell.Every(15 * time.Second)}, 0, 4},
		"at an interval, with retry": {[]cell.RootOption{cell.Every(25 * time.Second), cell.Retry(time.Second, 2*time.Second)}, 2, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				work := &counting{from: time.Now(), fail: c.fail}
				h := newHive(cell.Module("m", "Counts",
					cell.ProvidePrivate(func() *counting { return work }),
					cell.Job("run", (*counting).run, c.options...)))
				if err := h.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(59 * time.Second)
				synctest.Wait()
				if err := h.Stop(t.Context()); err != nil {
					t.Error(err)
				}
				if len(work.runs) != c.want {
					t.Errorf("%d runs, want %d: %v", len(work.runs), c.want, work.runs)
				}
			})
		})
	}
}

func TestOptionsOfWorkAreNoOptionsOfAConstructor(t *testing.T) {
	h := newHive(cell.Module("m", "Counts", cell.Job("run", func() job.Job { return job.Job{} }, cell.Every(time.Second))))
	if err := h.Select(); err == nil || !strings.Contains(err.Error(), `job "run" has the option Retry or Every and is made by a constructor`) {
		t.Error(err)
	}
}
