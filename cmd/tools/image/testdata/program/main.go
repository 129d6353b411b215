// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Program stands for an operator in tests of the image, since it is built in a moment.
package main

import "fmt"

func main() { fmt.Println("it runs") }
