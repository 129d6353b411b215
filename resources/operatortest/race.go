// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package operatortest

import "github.com/skep-operator/skep/resources/internal/race"

// RaceEnabled says whether tests run under the race detector.
const RaceEnabled = race.RaceEnabled
