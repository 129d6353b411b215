// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
)

// maxErrors is how many errors of one sweep are reported in full.
const maxErrors = 3

func joinErrors(errs []error) error {
	if len(errs) <= maxErrors {
		return errors.Join(errs...)
	}
	return fmt.Errorf("%w\nand %d more", errors.Join(errs[:maxErrors]...), len(errs)-maxErrors)
}

// report tells health what came of a sweep, and the log when that is news: the
// first failure of several, and when the safety limit is reached.
func (s *Sweep[K, T]) report(next k8s.Hold, err error) {
	before := s.failed
	if err == nil && s.left > 0 && before != nil && !isLimited(before) {
		return // what has failed waits behind what is left
	}
	s.failed = err
	if err == nil && len(s.panicked) > 0 {
		s.health.Degraded(fmt.Sprintf("%d objects are spared because their handling panicked", len(s.panicked)), joinErrors(slices.Collect(maps.Values(s.panicked))))
		return
	}
	if err == nil {
		s.health.OK(waitingText(s.terminating))
		return
	}
	s.health.Degraded(nextSweep(next), err)
	level := slog.LevelDebug
	if (before == nil || isLimited(err) != isLimited(before)) && !errors.Is(err, leading.ErrFenced) && next.Cause != k8s.NotPermitted {
		level = slog.LevelWarn
	}
	s.deps.Log.Log(context.Background(), level, "sweep failed, there will be another", "rule", s.spec.Rule, "error", err)
	if isLimited(err) && !isLimited(before) {
		s.deps.Events.WarnOnLease("SweepBraked", s.rule+": "+err.Error())
	}
}

func nextSweep(h k8s.Hold) string {
	if h.Detail != "" {
		return fmt.Sprintf("next sweep in %s, %s", h.Pause, h.Detail)
	}
	return fmt.Sprintf("next sweep in %s", h.Pause)
}
