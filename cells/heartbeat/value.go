// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package heartbeat

import "time"

// value is the heartbeat of a moment. Readers go by the event, people by the
// text.
func value(now time.Time) []byte { return now.UTC().AppendFormat(nil, time.RFC3339) }
