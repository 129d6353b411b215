// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import "time"

// Undone counts how often another writer has undone a change, for stores beside the API server: with the pauses that changes of objects
// have (K8S-9). The zero value is a change that lasts. It is not safe for concurrent use.
type Undone struct {
	times int
	at    time.Time // of the last one
}

// Add counts a change that was undone.
func (u *Undone) Add(now time.Time) {
	if u.IsOver(now) {
		u.times = 0
	}
	u.times++
	u.at = now
}

// Exceed counts a change that is made more often than in ordinary life, whatever the reason: it has to wait from the first one on.
func (u *Undone) Exceed(now time.Time) {
	if u.IsOver(now) || u.times < freeRepetitions {
		u.times = freeRepetitions
	}
	u.times++
	u.at = now
}

// Wait returns how long the change is not to be made again; 0 if it can be made.
func (u *Undone) Wait(now time.Time) time.Duration {
	return max(0, u.at.Add(pauseOf(u.times)).Sub(now))
}

// IsOver reports whether the change has lasted for so long that what was before does not count.
func (u *Undone) IsOver(now time.Time) bool { return now.Sub(u.at) > calmAfter(u.times) }

// Rest returns how long the change has to last until IsOver.
func (u *Undone) Rest(now time.Time) time.Duration {
	return u.at.Add(calmAfter(u.times) + time.Millisecond).Sub(now)
}

// IsFought reports whether the change is undone more often than by chance.
func (u *Undone) IsFought() bool { return u.times > freeRepetitions }

// Times is how often the change was undone.
func (u *Undone) Times() int { return u.times }
