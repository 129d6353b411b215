// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Time is a Kubernetes timestamp: whole seconds, counted from the year 1 so
// that the zero Time is the zero time.Time.
type Time int64

const unixEpoch = 62135596800 // seconds from the year 1 to 1970

// MakeTime cuts t to whole seconds.
func MakeTime(t time.Time) Time { return Time(t.Unix() + unixEpoch) }

// IsZero reports whether the timestamp is unset.
func (t Time) IsZero() bool { return t == 0 }

// Time returns the timestamp in UTC, the zero time.Time if it is unset.
func (t Time) Time() time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.Unix(int64(t)-unixEpoch, 0).UTC()
}

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) { return metav1.Time{Time: t.Time()}.MarshalJSON() }

// UnmarshalJSON implements json.Unmarshaler.
func (t *Time) UnmarshalJSON(data []byte) error {
	var full metav1.Time
	if err := json.Unmarshal(data, &full); err != nil {
		return err
	}
	*t = MakeTime(full.Time)
	return nil
}

// AcceptsField implements FieldDecoder.
func (*Time) AcceptsField(full reflect.Type) error {
	if full != reflect.TypeFor[metav1.Time]() {
		return fmt.Errorf("slim.Time keeps a metav1.Time, not %s", full)
	}
	return nil
}

// DecodeField implements FieldDecoder.
func (t *Time) DecodeField(f Field) error {
	for v := range f.Values() {
		if len(v) == 0 {
			*t = 0
			continue
		}
		var ts metav1.Timestamp
		if err := ts.Unmarshal(v); err != nil {
			return err
		}
		*t = Time(ts.Seconds + unixEpoch)
	}
	return nil
}
