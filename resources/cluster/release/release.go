// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package release

import (
	"fmt"
	"strconv"
	"strings"
)

// Release is a minor release of Cilium whose agents are served. The zero value is the newest. Releases can be told apart and
// asked; they have no order for others than this package.
type Release struct {
	behind uint8 // the newest
}

// names are the releases, the oldest first. The answers of each question are in this order.
var names = [...]string{"1.17", "1.18", "1.19", "1.20"}

// All returns the releases, the oldest first. The slice is the caller's.
func All() []Release {
	all := make([]Release, len(names))
	for i := range all {
		all[i] = at(i)
	}
	return all
}

// at returns the release whose name is the i-th.
func at(i int) Release { return Release{uint8(len(names) - 1 - i)} }

// index is the place of its name.
func (r Release) index() int { return len(names) - 1 - int(r.behind) }

// Newest is what a release counts as that is newer than all of these, and one that is not known.
func Newest() Release { return Release{} }

// String returns the release as people write it, such as 1.19.
func (r Release) String() string { return names[r.index()] }

// Parse returns the release of a version, such as 1.19, v1.19.4 or 1.20.0-pre.1. One that is newer than all counts as the
// newest, one that is older than all as the oldest; exact is false for both. The error is that of a text that is no version.
func Parse(version string) (r Release, exact bool, err error) {
	major, minor, err := parts(version)
	if err != nil {
		return Release{}, false, err
	}
	oldestMajor, oldestMinor, _ := parts(names[0])
	switch {
	case major > oldestMajor, major == oldestMajor && minor >= oldestMinor+len(names):
		return Newest(), false, nil
	case major < oldestMajor, minor < oldestMinor:
		return at(0), false, nil
	}
	return at(minor - oldestMinor), true, nil
}

// parts returns major and minor of a version.
func parts(version string) (major, minor int, err error) {
	fields := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(fields) < 2 {
		return 0, 0, fmt.Errorf("%q is no version such as %s", version, names[0])
	}
	if major, err = strconv.Atoi(fields[0]); err == nil {
		minor, err = strconv.Atoi(fields[1])
	}
	if err != nil || major < 0 || minor < 0 {
		return 0, 0, fmt.Errorf("%q is no version such as %s", version, names[0])
	}
	return major, minor, nil
}
