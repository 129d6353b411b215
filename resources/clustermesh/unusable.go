// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"log/slog"
	"time"
)

const (
	// maxUnusable is how many lines of the log values make in unusablePause, the last of which says how many more there are.
	maxUnusable   = 5
	unusablePause = time.Minute
)

// unusable reports values of a remote cluster that cannot be used; a metric counts them all. It is for one goroutine.
type unusable struct {
	log   *slog.Logger
	until time.Time // when lines are written again
	lines int
	more  int // values without a line
}

func (u *unusable) report(key string, err error, now time.Time) {
	if !now.Before(u.until) {
		u.sum(now)
		u.until, u.lines = now.Add(unusablePause), 0
	}
	if u.lines >= maxUnusable-1 {
		u.more++
		return
	}
	u.lines++
	u.log.Warn("value of a remote cluster cannot be used, keeping the one before", "key", key, "error", err)
}

// sum says how many values had no line, if that was not said within the pause.
func (u *unusable) sum(now time.Time) {
	if u.more == 0 || now.Before(u.until) && u.lines >= maxUnusable {
		return
	}
	u.log.Warn("more values of a remote cluster cannot be used, keeping those before", "values", u.more)
	u.lines, u.more = u.lines+1, 0
}
