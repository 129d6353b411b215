// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"testing"

	"github.com/skep-operator/skep/resources/operatortest"
)

func TestMain(m *testing.M) { operatortest.Main(m) }
