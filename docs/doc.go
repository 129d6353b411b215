// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package docs checks what people read against what is so, and writes the parts
// of it that follow from the code. There is nothing in it to import.
package docs
