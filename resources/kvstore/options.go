// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// options are the values of kvstore-opt.
type options struct {
	address, file    string
	keepAlive        time.Duration
	keepAliveTimeout time.Duration
	qps, inFlight    int
	pageSize         int
}

// optionSetters are the keys of kvstore-opt and what each sets.
var optionSetters = map[string]func(o *options, value string) error{
	"etcd.address":            func(o *options, v string) error { o.address = v; return nil },
	"etcd.config":             func(o *options, v string) error { o.file = v; return nil },
	"etcd.keepaliveHeartbeat": func(o *options, v string) error { return setDuration(&o.keepAlive, v) },
	"etcd.keepaliveTimeout":   func(o *options, v string) error { return setDuration(&o.keepAliveTimeout, v) },
	"etcd.qps":                func(o *options, v string) error { return setNumber(&o.qps, v, 1) },
	"etcd.maxInflight":        func(o *options, v string) error { return setNumber(&o.inFlight, v, 1) },
	"etcd.limit":              func(o *options, v string) error { return setNumber(&o.pageSize, v, 0) },
	// Agents have a higher rate until they are up. Only they do.
	"etcd.bootstrapQps": func(_ *options, v string) error { return setNumber(new(int), v, 0) },
	// Of releases before 1.16; still in their ConfigMaps.
	"etcd.operator": func(*options, string) error { return nil },
}

// ignoredOptions are accepted and named once at the start.
var ignoredOptions = []string{"etcd.operator"}

// parseOptions reads kvstore-opt. Each key that is at fault has an error.
func parseOptions(values map[string]string) (options, []error) {
	o := options{keepAlive: 15 * time.Second, keepAliveTimeout: 25 * time.Second, qps: 20, pageSize: 256}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(values)) {
		set, ok := optionSetters[key]
		if !ok {
			errs = append(errs, unknownKey(key, slices.Sorted(maps.Keys(optionSetters))))
			continue
		}
		if err := set(&o, values[key]); err != nil {
			errs = append(errs, fmt.Errorf("%s=%s: %w", key, values[key], err))
		}
	}
	if len(errs) == 0 && o.address == "" && o.file == "" {
		errs = append(errs, errors.New("must have etcd.address or etcd.config"))
	}
	if o.inFlight == 0 {
		o.inFlight = o.qps
	}
	return o, errs
}

func setDuration(to *time.Duration, text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return errors.New("must be a duration such as 15s")
	}
	*to = d
	return nil
}

func setNumber(to *int, text string, least int) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < least {
		return fmt.Errorf("must be a number of at least %d", least)
	}
	*to = n
	return nil
}

// unknownKey is the error for a key that is none of those known.
func unknownKey(key string, known []string) error {
	if near := suggest(key, known); near != "" {
		return fmt.Errorf("unknown key %q: did you mean %s?", key, near)
	}
	return fmt.Errorf("unknown key %q: known are %s", key, strings.Join(known, ", "))
}

// suggest is the name that a mistyped one was meant to be, or "".
func suggest(name string, known []string) string {
	c := &cobra.Command{}
	for _, k := range known {
		c.AddCommand(&cobra.Command{Use: k, Run: func(*cobra.Command, []string) {}})
	}
	for c.SuggestionsMinimumDistance = 1; c.SuggestionsMinimumDistance <= 3; c.SuggestionsMinimumDistance++ {
		if near := c.SuggestionsFor(name); len(near) > 0 {
			return near[0]
		}
	}
	return ""
}
