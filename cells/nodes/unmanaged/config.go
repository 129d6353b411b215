// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package unmanaged

import (
	"errors"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/skep-operator/skep/runtime/cell"
)

const (
	intervalFlag = "unmanaged-pod-watcher-interval"
	selectorFlag = "pod-restart-selector"
	observeFlag  = "enable-unmanaged-pod-observe-only"
)

// Config is which pods are checked, how often, and whether they are restarted.
type Config struct {
	UnmanagedPodWatcherInterval   seconds `flag:"unmanaged-pod-watcher-interval" usage:"Interval between checks for pods without CiliumEndpoint, as a duration or in seconds. 0 disables them"`
	PodRestartSelector            string  `flag:"pod-restart-selector" usage:"Label selector of the pods that are restarted where they have no CiliumEndpoint; empty for all pods"`
	UnmanagedPodsOneAtATime       bool    `flag:"unmanaged-pods-one-at-a-time" usage:"Restart one pod in a pass, the oldest, and not one of each namespace"`
	EnableUnmanagedPodObserveOnly bool    `flag:"enable-unmanaged-pod-observe-only" usage:"Report pods without CiliumEndpoint by metrics and Events, and restart none"`
}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	var errs []error
	if d := c.UnmanagedPodWatcherInterval; d != 0 && time.Duration(d) < time.Second {
		errs = append(errs, cell.Invalid(intervalFlag, "must be at least 1s, or 0, which restarts no pods"))
	}
	if _, err := labels.Parse(c.PodRestartSelector); err != nil {
		errs = append(errs, cell.Invalid(selectorFlag, "must be a label selector such as k8s-app=kube-dns: %v", err))
	}
	return errors.Join(errs...)
}

// seconds is a duration, of which a bare number is one of seconds.
type seconds time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *seconds) UnmarshalText(text []byte) error {
	if n, err := strconv.ParseInt(string(text), 10, 32); err == nil {
		*s = seconds(time.Duration(n) * time.Second)
		return nil
	}
	d, err := time.ParseDuration(string(text))
	if err != nil {
		return errors.New("must be a number of seconds, or a duration such as 15s")
	}
	*s = seconds(d)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (s seconds) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }
