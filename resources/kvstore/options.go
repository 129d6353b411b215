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
	growPages        bool // pages may be larger where keys are small
}

// A page may grow to so many bytes, by the size of the keys of the page before, and to so many keys. From largePage on it shrinks.
const pageBytes, maxPage, largePage = 512 << 10, 4096, 4 << 20

// nextPage is how many keys the page after one of some keys and bytes has.
func (o options) nextPage(keys, bytes int) int {
	switch {
	case keys > 0 && bytes > largePage:
		return max(1, keys*largePage/bytes)
	case !o.growPages || keys == 0 || bytes == 0:
		return o.pageSize
	}
	return max(o.pageSize, min(maxPage, keys*pageBytes/bytes))
}

// optionSetters maps the keys of kvstore-opt to the option that each sets.
var optionSetters = map[string]func(o *options, value string) error{
	"etcd.address":            func(o *options, v string) error { o.address = v; return nil },
	"etcd.config":             func(o *options, v string) error { o.file = v; return nil },
	"etcd.keepaliveHeartbeat": func(o *options, v string) error { return setDuration(&o.keepAlive, v) },
	"etcd.keepaliveTimeout":   func(o *options, v string) error { return setDuration(&o.keepAliveTimeout, v) },
	"etcd.qps":                func(o *options, v string) error { return setInt(&o.qps, v, 1) },
	"etcd.maxInflight":        func(o *options, v string) error { return setInt(&o.inFlight, v, 1) },
	"etcd.limit":              func(o *options, v string) error { o.growPages = false; return setInt(&o.pageSize, v, 0) },
	// Only agents have a higher rate while they start.
	"etcd.bootstrapQps": func(_ *options, v string) error { return setInt(new(int), v, 0) },
	// From releases before 1.16, still found in their ConfigMaps.
	"etcd.operator": func(*options, string) error { return nil },
}

// ignoredOptions are accepted and logged once at start.
var ignoredOptions = []string{"etcd.operator"}

// parseOptions parses kvstore-opt and returns one error per invalid key.
func parseOptions(values map[string]string) (options, []error) {
	o := options{keepAlive: 15 * time.Second, keepAliveTimeout: 25 * time.Second, qps: 20, pageSize: 256, growPages: true}
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

func setInt(to *int, text string, least int) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < least {
		return fmt.Errorf("must be a number of at least %d", least)
	}
	*to = n
	return nil
}

// unknownKey returns the error for an unknown key, with the nearest known one.
func unknownKey(key string, known []string) error {
	if near := suggest(key, known); near != "" {
		return fmt.Errorf("unknown key %q: did you mean %s?", key, near)
	}
	return fmt.Errorf("unknown key %q: known are %s", key, strings.Join(known, ", "))
}

// suggest returns the known name nearest to a mistyped one, or "".
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
